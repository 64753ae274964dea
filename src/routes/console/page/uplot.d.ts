/** Served as it comes, from the package; see src/routes/console/files.ts. */
export { default } from "uplot";
