import type { ScriptFile } from "../script.ts";
import { admit } from "./admit.ts";
import { bind } from "./bind.ts";
import { claim } from "./claim.ts";
import { collect } from "./collect.ts";
import { credits } from "./credits.ts";
import { dispute } from "./dispute.ts";
import { free } from "./free.ts";
import { inspect } from "./inspect.ts";
import { issue } from "./issue.ts";
import { observe } from "./observe.ts";
import { own } from "./own.ts";
import { probe } from "./probe.ts";
import { recharge } from "./recharge.ts";
import { snapshot } from "./snapshot.ts";
import { survey } from "./survey.ts";
import { unclear } from "./unclear.ts";
import { voidHold } from "./void.ts";

/** All scripts; each is `lua/<name>.lua`. */
export const SCRIPTS: readonly ScriptFile[] = [
  admit,
  own,
  dispute,
  free,
  bind,
  voidHold,
  unclear,
  inspect,
  observe,
  credits,
  issue,
  recharge,
  claim,
  collect,
  probe,
  snapshot,
  survey,
];
