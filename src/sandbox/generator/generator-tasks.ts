import { randomUUID } from "node:crypto";
import type { Behaviour } from "./behaviour.ts";

const KEPT_MS = 3_600_000;

export interface TaskView {
  task_id: string;
  status: "pending" | "processing" | "completed" | "failed";
  progress?: number;
  video_url?: string;
  thumbnail_url?: string;
  failure_reason?: string;
  created_at: string;
  completed_at?: string;
}

/** Its state follows from the time, so it needs no timer. */
interface Task {
  id: string;
  createdAtMs: number;
  startDelayMs: number;
  durationMs: number;
  fails: boolean;
  idempotencyKey: string | undefined;
  directives: Partial<Behaviour>;
}

export type TaskStore = ReturnType<typeof createTaskStore>;

export function createTaskStore(tasksMax: number, now: () => number, baseUrl: () => string) {
  const byId = new Map<string, Task>();
  const byKey = new Map<string, Task>();
  let lastId: string | undefined;
  let count = 0;

  function forget(task: Task): void {
    byId.delete(task.id);
    if (task.idempotencyKey !== undefined) byKey.delete(task.idempotencyKey);
  }

  function collect(room: number): void {
    for (const task of byId.values()) {
      if (byId.size + room <= tasksMax && task.createdAtMs > now() - KEPT_MS) return;
      forget(task);
    }
  }

  function newId(wanted: string): string {
    if (wanted === "duplicate") return lastId ?? randomUUID();
    return wanted === "new" ? `task_${randomUUID()}` : wanted;
  }

  return {
    create(behaviour: Behaviour, directives: Partial<Behaviour>, idempotencyKey: string | undefined): Task {
      collect(1);
      const id = newId(behaviour.taskId);
      lastId = id;
      const existing = byId.get(id);
      if (existing) return existing;
      count++;
      const task: Task = {
        id,
        createdAtMs: now(),
        startDelayMs: behaviour.startDelayMs,
        durationMs: behaviour.durationMs,
        fails: Math.floor(count * behaviour.failRatio) > Math.floor((count - 1) * behaviour.failRatio),
        idempotencyKey,
        directives,
      };
      byId.set(id, task);
      if (idempotencyKey !== undefined) byKey.set(idempotencyKey, task);
      return task;
    },
    find(id: string): Task | undefined {
      collect(0);
      return byId.get(id);
    },
    findByIdempotencyKey: (key: string) => byKey.get(key),
    view: (task: Task) => viewAt(task, now(), baseUrl()),
    finalView: (task: Task) => viewAt(task, task.createdAtMs + task.durationMs, baseUrl()),
  };
}

function viewAt(task: Task, nowMs: number, baseUrl: string): TaskView {
  const ageMs = nowMs - task.createdAtMs;
  const created_at = new Date(task.createdAtMs).toISOString();
  if (ageMs >= task.durationMs) {
    const failure_reason = "The sandbox was told to fail";
    if (task.fails) return { task_id: task.id, status: "failed", failure_reason, created_at };
    return {
      task_id: task.id,
      status: "completed",
      progress: 100,
      video_url: `${baseUrl}/media/${encodeURIComponent(task.id)}.mp4`,
      thumbnail_url: `${baseUrl}/media/${encodeURIComponent(task.id)}.png`,
      created_at,
      completed_at: new Date(task.createdAtMs + task.durationMs).toISOString(),
    };
  }
  if (ageMs < task.startDelayMs) return { task_id: task.id, status: "pending", progress: 0, created_at };
  const share = (ageMs - task.startDelayMs) / Math.max(1, task.durationMs - task.startDelayMs);
  const progress = Math.min(99, Math.max(1, Math.floor(share * 100)));
  return { task_id: task.id, status: "processing", progress, created_at };
}
