/** Served as it comes, from the package; see src/operator/console/files.ts. */
export { default } from "uplot";
