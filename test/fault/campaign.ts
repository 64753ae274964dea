import { check, formatVerdict } from "./checker.ts";
