/** Served as it comes, from the package; see src/admin/console/files.ts. */
export { default } from "htm";
