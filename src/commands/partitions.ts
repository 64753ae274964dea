import { type Command, InvalidArgumentError } from "commander";
import {
  freezePartitions,
  listPartitions,
  type PartitionView,
  thawPartitions,
} from "../operations/store/freezing.ts";
import { readsOfMost } from "../redis/partition-reads.ts";
import { command, group } from "./options.ts";
import { print } from "./output.ts";
import { withRedis, withRedisToWrite } from "./redis.ts";
import { iso, moment, table } from "./terminal.ts";

export const partitionsCommand = group(
  "partitions",
  "the partitions of a store: where they are, and freezing them while a Redis Cluster moves their slots",
  [listCommand, freezeCommand, thawCommand],
);

function listCommand(): Command {
  return command("list", "where each partition is, and which are frozen since when")
    .option("--frozen", "only those that are frozen, or whose slot is on its way to another node")
    .action(async (flags: { frozen?: boolean; json?: boolean }) => {
      const { views, unread } = await withRedis(async (nodes) => {
        const reads = readsOfMost(nodes);
        return { views: await listPartitions(nodes, reads), unread: reads.unread() };
      });
      const shown = flags.frozen ? views.filter((view) => stateOf(view) !== "") : views;
      const text =
        shown.length === 0
          ? "No partition is frozen."
          : table(["PARTITION", "SLOT", "SERVER", "STATE", "SINCE"], shown.map(rowOf));
      print({ json: { partitions: shown.map(jsonOf) }, text, unread }, flags);
    });
}

function freezeCommand(): Command {
  return onPartitions(
    "freeze",
    "stop all changes to partitions; their accounts get 503 until they are thawed",
  ).action(async (partitions: number[], flags: { json?: boolean }) => {
    await withRedisToWrite((nodes) => freezePartitions(nodes, partitions));
    const text = `Frozen: ${partitions.join(", ")}. Nothing changes them any more. Their accounts get 503 until \`tollgate partitions thaw\`.`;
    print({ json: { frozen: partitions }, text }, flags);
  });
}

function thawCommand(): Command {
  return onPartitions("thaw", "end a freeze; gateways serve the accounts again within seconds").action(
    async (partitions: number[], flags: { json?: boolean }) => {
      await withRedisToWrite((nodes) => thawPartitions(nodes, partitions));
      const text = `Thawed: ${partitions.join(", ")}. Gateways serve their accounts again within seconds, and settle what waits.`;
      print({ json: { thawed: partitions }, text }, flags);
    },
  );
}

const onPartitions = (name: string, description: string): Command =>
  command(name, description).argument("<partitions>", "numbers and ranges, such as 3,17 or 0-21", numbersIn);

function numbersIn(text: string): number[] {
  const numbers = text.split(",").flatMap((part) => {
    const [, first, last = first] = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(part) ?? [];
    const count = Number(last) - Number(first) + 1;
    if (!(count >= 1)) throw new InvalidArgumentError("It must be numbers and ranges, such as 3,17 or 0-21.");
    return Array.from({ length: count }, (_, at) => Number(first) + at);
  });
  return [...new Set(numbers)].sort((a, b) => a - b);
}

/** Empty for a partition that is in use. */
function stateOf({ frozenSinceMs, hasFreezeFlag, isMoving }: PartitionView): string {
  if (isMoving) return frozenSinceMs === undefined ? "moving" : "moving, frozen";
  if (frozenSinceMs === undefined) return hasFreezeFlag ? "frozen, not listed" : "";
  return hasFreezeFlag === false ? "listed, not frozen" : "frozen";
}

const rowOf = (view: PartitionView): (string | number | undefined)[] => [
  view.partition,
  view.slot,
  view.server,
  stateOf(view),
  moment(view.frozenSinceMs),
];

const jsonOf = (view: PartitionView): Record<string, unknown> => ({
  partition: view.partition,
  slot: view.slot,
  server: view.server,
  state: stateOf(view) || "in use",
  frozen_since: iso(view.frozenSinceMs),
});
