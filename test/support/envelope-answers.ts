import { ENVELOPE_CHOICE } from "../../src/upstream/adapter-choice.ts";
import type { Answer, StatusWords } from "../../src/upstream/answer.ts";
import { Dialect } from "../../src/upstream/dialect.ts";
import * as answers from "../../src/upstream/poll-answer.ts";
import * as polls from "../../src/upstream/poll-request.ts";
import * as uploads from "../../src/upstream/upload-stream.ts";
import * as generations from "../../src/upstream/upstream.ts";

// Answers of an upstream that speaks the interface's own shapes.

const DIALECT = new Dialect(ENVELOPE_CHOICE);

export const readGeneration = (answer: Answer, sent = "", statuses?: StatusWords) =>
  generations.readGeneration(answer, sent, statuses, DIALECT);

export const generationOutcome = (result: Parameters<typeof generations.generationOutcome>[0]) =>
  generations.generationOutcome(result, "", undefined, DIALECT);

export const readPoll = (answer: Answer, task: answers.PolledTask) => answers.readPoll(answer, task, DIALECT);

export const pollOutcome = (result: Parameters<typeof polls.pollOutcome>[0], task: answers.PolledTask) =>
  polls.pollOutcome(result, task, DIALECT);

export const interpretAnswer = (answer: Answer) => uploads.interpretAnswer(answer, DIALECT);
