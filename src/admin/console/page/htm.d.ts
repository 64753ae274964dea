/** Served as it comes, from the package; see src/admin/console/console.ts. */
export { default } from "htm";
