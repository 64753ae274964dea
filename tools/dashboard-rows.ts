/** Content of one panel, before it becomes Grafana's JSON. */
export interface Panel {
  type: "timeseries" | "stat" | "bargauge" | "text";
  title: string;
  description: string;
  w: number;
  h: number;
  queries?: readonly { expr: string; legend?: string }[];
  unit?: string;
  min?: number;
  max?: number;
  stack?: boolean;
  thresholds?: { base?: string; steps: readonly { color: string; value: number }[] };
  /** Value to the word that is shown instead. */
  words?: Record<string, { text: string }>;
  textMode?: "auto" | "name";
  content?: string;
}

type Look = Partial<Omit<Panel, "type" | "title" | "description" | "queries">>;
type Query = string | readonly [expr: string, legend: string];

const queries = (queried: readonly Query[]) =>
  queried.map((query) =>
    typeof query === "string" ? { expr: query } : { expr: query[0], legend: query[1] },
  );

const graph = (title: string, description: string, queried: readonly Query[], look: Look = {}): Panel => ({
  type: "timeseries",
  title,
  description,
  w: 8,
  h: 8,
  queries: queries(queried),
  min: 0,
  ...look,
});

const stat = (title: string, description: string, query: Query, look: Look = {}): Panel => ({
  type: "stat",
  title,
  description,
  w: 4,
  h: 4,
  queries: queries([query]),
  ...look,
});

/** Green below the first value, then orange, then red. */
const upTo = (orange: number, red: number) => ({
  steps: [
    { color: "orange", value: orange },
    { color: "red", value: red },
  ],
});
const zeroIsBad = { base: "red", steps: [{ color: "green", value: 1 }] };
const anyIsBad = { steps: [{ color: "red", value: 1 }] };

const HERE = 'instance=~"$instance"';
const RATE = "$__rate_interval";
const REQUESTS = `tollgate_requests_total{${HERE}, route=~"$route"}`;
/** Without 505, the client's fault: it needs no key. */
const FAILED = `tollgate_requests_total{${HERE}, route=~"$route", status=~"5..", outcome!="version_unsupported"}`;
const ADMISSIONS = `tollgate_admissions_total{${HERE}, tier=~"$tier"}`;
const LIMITED = "rate_limited|concurrency_limited|daily_limited|insufficient_credits";
const REFUSED = `tollgate_admissions_total{${HERE}, tier=~"$tier", outcome=~"${LIMITED}"}`;
/** Verbs that a client waits for; the others are the sweeper's, the command line's and the breaker's. */
const WAITED_FOR = `tollgate_store_call_duration_seconds_sum{${HERE}, script=~"admit|bind|void|inspect|observe|credits"}`;
const UPSTREAM_SUM = `tollgate_upstream_duration_seconds_sum{${HERE}}`;
const REQUEST_SUM = `tollgate_request_duration_seconds_sum{${HERE}}`;
const REQUEST_COUNT = `tollgate_request_duration_seconds_count{${HERE}}`;

const rate = (series: string): string => `sum(rate(${series}[${RATE}]))`;
const rateBy = (labels: string, series: string): string => `sum by (${labels}) (rate(${series}[${RATE}]))`;
const quantile = (q: number, labels: string, buckets: string): string =>
  `histogram_quantile(${q}, ${rateBy(`${labels}, le`, buckets)})`;
const settled = (outcome: string): string => `tollgate_settlements_total{${HERE}, outcome=~"${outcome}"}`;

export const ROWS: readonly { title: string; panels: readonly Panel[] }[] = [
  {
    title: "Is it up?",
    panels: [
      stat("Gateways", "Gateways that answer the scrape.", `count(tollgate_build_info{${HERE}})`, {
        thresholds: zeroIsBad,
      }),
      stat(
        "Store",
        "Away: requests are refused with 503, or pass uncharged where the strategy is `allow`. The worst gateway counts.",
        `min(tollgate_store_up{${HERE}})`,
        { thresholds: zeroIsBad, words: { "0": { text: "away" }, "1": { text: "usable" } } },
      ),
      stat(
        "Error budget burn",
        "Answers with 5xx but 505 in the last hour, as a multiple of what an objective of 99.9 % allows. At 14.4 a month's budget is gone in two days.",
        `(sum(rate(${FAILED}[1h])) or vector(0)) / sum(rate(${REQUESTS}[1h])) / 0.001`,
        { thresholds: upTo(1, 14.4), unit: "short" },
      ),
      stat("Requests", "Answered now, on all routes chosen above.", rate(REQUESTS), { unit: "reqps" }),
      stat(
        "Config reload",
        "Failed: the file on disk has a mistake and the former configuration goes on; the log names each problem.",
        `min(tollgate_config_last_reload_successful{${HERE}})`,
        { thresholds: zeroIsBad, words: { "0": { text: "failed" }, "1": { text: "good" } } },
      ),
      stat(
        "Version",
        "What runs; two at once during a rollout.",
        [`count by (version) (tollgate_build_info{${HERE}})`, "{{version}}"],
        { textMode: "name" },
      ),
    ],
  },
  {
    title: "Traffic",
    panels: [
      graph(
        "Requests by outcome",
        "`ok`, `cached`, `charge_waits`, `uncollected`, `replayed` and `unmetered` are good answers; the others are names of errors.",
        [[rateBy("outcome", REQUESTS), "{{outcome}}"]],
        { unit: "reqps", stack: true },
      ),
      graph(
        "Requests by route",
        "Route templates; `unknown` is a path that does not exist, `none` was refused before it was read.",
        [[rateBy("route", REQUESTS), "{{route}}"]],
        { unit: "reqps", stack: true },
      ),
      graph(
        "Answers with 5xx",
        "Share of all answers, by outcome; without 505, which is the client's fault.",
        [[`${rateBy("outcome", FAILED)} / on () group_left () ${rate(REQUESTS)}`, "{{outcome}}"]],
        { unit: "percentunit", stack: true },
      ),
      graph(
        "Duration of good answers",
        "From the request's headers to the end of its answer; most of a generation is the generator.",
        [
          [
            quantile(
              0.5,
              "route",
              `tollgate_request_duration_seconds_bucket{${HERE}, route=~"$route", class="2xx"}`,
            ),
            "p50 {{route}}",
          ],
          [
            quantile(
              0.99,
              "route",
              `tollgate_request_duration_seconds_bucket{${HERE}, route=~"$route", class="2xx"}`,
            ),
            "p99 {{route}}",
          ],
        ],
        { unit: "s" },
      ),
      graph(
        "Where the time goes",
        "Mean seconds of one request: waiting for the generator, waiting for Redis, and the rest, which is the gateway and the client's own line.",
        [
          [`${rate(UPSTREAM_SUM)} / ${rate(REQUEST_COUNT)}`, "generator"],
          [`${rate(WAITED_FOR)} / ${rate(REQUEST_COUNT)}`, "store"],
          [
            `clamp_min((${rate(REQUEST_SUM)} - ${rate(UPSTREAM_SUM)} - ${rate(WAITED_FOR)}) / ${rate(REQUEST_COUNT)}, 0)`,
            "gateway and client",
          ],
        ],
        { unit: "s", stack: true },
      ),
      graph(
        "In flight",
        "Requests being worked on, and generations whose exchange with the generator is under way.",
        [
          [`sum(tollgate_requests_in_flight{${HERE}})`, "requests"],
          [`sum(tollgate_holds{${HERE}})`, "generations at the generator"],
          [`sum(tollgate_uploads_in_flight{${HERE}})`, "uploads"],
        ],
      ),
    ],
  },
  {
    title: "Who is limited, and why?",
    panels: [
      graph(
        "Admissions by outcome",
        "Decisions about generation requests of the tiers chosen above.",
        [[rateBy("outcome", ADMISSIONS), "{{outcome}}"]],
        { unit: "reqps", stack: true },
      ),
      graph(
        "Refused, by tier and reason",
        "rate_limited: the window; concurrency_limited: slots; daily_limited: the day; insufficient_credits: the balance.",
        [[rateBy("tier, outcome", REFUSED), "{{tier}} {{outcome}}"]],
        { unit: "reqps", stack: true },
      ),
      graph(
        "Near a limit",
        "Share of admissions that left less than 20 % of the window, or took the last slot: who will be refused next.",
        [
          [
            `sum by (tier, limit) (rate(tollgate_admissions_near_limit_total{${HERE}, tier=~"$tier"}[${RATE}])) / on (tier) group_left () sum by (tier) (rate(tollgate_admissions_total{${HERE}, tier=~"$tier", outcome="admitted"}[${RATE}]))`,
            "{{tier}} {{limit}}",
          ],
        ],
        { unit: "percentunit", max: 1 },
      ),
      {
        type: "bargauge",
        title: "Share refused, last hour",
        description: "Of all decisions of a tier.",
        w: 8,
        h: 6,
        queries: queries([
          [
            `sum by (tier, outcome) (increase(${REFUSED}[1h])) / on (tier) group_left () sum by (tier) (increase(${ADMISSIONS}[1h]))`,
            "{{tier}} {{outcome}}",
          ],
        ]),
        unit: "percentunit",
        min: 0,
        max: 1,
        thresholds: upTo(0.05, 0.25),
      },
      graph(
        "Not let in",
        "Requests without a good key. Many unknown keys from one address: somebody guesses.",
        [
          [
            rateBy(
              "outcome",
              `tollgate_requests_total{${HERE}, outcome=~"missing_api_key|invalid_api_key|too_many_unknown_keys"}`,
            ),
            "{{outcome}}",
          ],
        ],
        { unit: "reqps", h: 6 },
      ),
      {
        type: "text",
        title: "Which keys?",
        description: "Metrics carry no keys: their number has no bound.",
        w: 8,
        h: 6,
        content:
          "Metrics name tiers, never keys. The console on the admin port lists the keys with the most use and the most refusals; each log line has `key_id`, `outcome` and `request_id`.",
      },
    ],
  },
  {
    title: "Does money flow right?",
    panels: [
      graph(
        "Credits per hour",
        "Charged for tasks, given back for failed ones, and not collected since the account could not pay any more.",
        [
          [`3600 * ${rate(`tollgate_credits_consumed_total{${HERE}}`)}`, "consumed"],
          [`3600 * ${rate(`tollgate_credits_refunded_total{${HERE}}`)}`, "refunded"],
          [`3600 * ${rate(`tollgate_credits_uncollected_total{${HERE}}`)}`, "uncollected"],
        ],
      ),
      graph(
        "Refunded tasks",
        "Share of charged tasks. More than usual: the generator fails, or a prompt that many use does.",
        [
          [
            `sum(increase(${settled("refunded")}[1h])) / sum(increase(${settled("bound|late")}[1h]))`,
            "last hour",
          ],
        ],
        { unit: "percentunit", thresholds: upTo(0.05, 0.2) },
      ),
      graph(
        "Settlements",
        "`late` and `uncollected`: a task came after its hold had ended. `forgotten`: after its request was collected. `conflict`: the generator gave one task id twice.",
        [[rateBy("outcome", `tollgate_settlements_total{${HERE}}`), "{{outcome}}"]],
        { unit: "ops", stack: true },
      ),
      stat(
        "Broken ledger invariants",
        "Invariants that the last check of the ledger found broken; each is named in the log.",
        `max(tollgate_ledger_violations{${HERE}})`,
        {
          thresholds: anyIsBad,
        },
      ),
      stat(
        "Ledger checked",
        "How long ago. See `store.ledger_check_interval`.",
        `time() - max(tollgate_ledger_check_timestamp_seconds{${HERE}})`,
        {
          unit: "s",
          thresholds: upTo(7200, 21600),
        },
      ),
      stat(
        "Charges waiting",
        "Settlements that wait for the store, here or on disk.",
        `sum(tollgate_store_outbox_entries{${HERE}})`,
        {
          thresholds: anyIsBad,
        },
      ),
      graph(
        "In the ledger",
        "All credits ever moved, as of the last check. Recharges are made by the command line and are seen here only.",
        [[`max by (type) (tollgate_ledger_credits{${HERE}})`, "{{type}}"]],
        { w: 6, h: 6 },
      ),
      graph(
        "Archive lag",
        "Age of the oldest ledger entry that the archive has not got. Seconds are normal. Without an archive: 0.",
        [[`max(tollgate_archive_lag_seconds{${HERE}})`, "lag"]],
        { unit: "s", w: 6, h: 6, thresholds: upTo(60, 600) },
      ),
      graph(
        "Uncharged requests",
        "Let through while the store was away (`fallback_strategy: allow`).",
        [[rateBy("route", `tollgate_degraded_requests_total{${HERE}}`), "{{route}}"]],
        { unit: "reqps", w: 6, h: 6 },
      ),
    ],
  },
  {
    title: "Do tasks get stuck?",
    panels: [
      graph(
        "Active slots",
        "Open requests of the whole store, each of which has a slot: holds and unfinished tasks.",
        [[`sum by (state) (max by (state, age) (tollgate_open_requests{${HERE}}))`, "{{state}}"]],
        { stack: true },
      ),
      graph(
        "Holds by age",
        "A hold ends within about two minutes; one with a `callBackUrl` and an unknown outcome lasts for `tasks.max_age`.",
        [[`max by (age) (tollgate_open_requests{${HERE}, state="held"})`, "{{age}}"]],
        { stack: true },
      ),
      graph(
        "Tasks by age",
        "A video takes minutes. After `tasks.max_age` a task is ended as failed and refunded.",
        [[`max by (age) (tollgate_open_requests{${HERE}, state="bound"})`, "{{age}}"]],
        { stack: true },
      ),
      graph(
        "Oldest",
        "Age of the oldest hold and of the oldest unfinished task.",
        [[`max by (state) (tollgate_open_requests_oldest_seconds{${HERE}})`, "{{state}}"]],
        { unit: "s", w: 6 },
      ),
      graph(
        "Sweeper",
        "Lag: how long the most overdue work waits. Round: how long one gateway takes to look at all partitions.",
        [
          [`max(tollgate_sweeper_lag_seconds{${HERE}})`, "lag"],
          [`max(tollgate_sweep_duration_seconds{${HERE}})`, "round"],
        ],
        { unit: "s", w: 6 },
      ),
      graph(
        "Sweeper's work",
        "What it took up. `interrupted`: the store went away; `failed` and `timed_out`: the generator.",
        [[rateBy("kind, outcome", `tollgate_sweeper_items_total{${HERE}}`), "{{kind}} {{outcome}}"]],
        { unit: "ops", stack: true, w: 6 },
      ),
      graph(
        "Unknown outcomes",
        "Generations of which nobody can say whether a task runs. Their holds end by themselves, uncharged.",
        [[rate(`tollgate_upstream_unknown_outcomes_total{${HERE}}`), "unknown"]],
        { unit: "ops", w: 6 },
      ),
    ],
  },
  {
    title: "The generator",
    panels: [
      graph(
        "Outcomes",
        "Exchanges that a client waited for.",
        [
          [
            rateBy("kind, outcome", `tollgate_upstream_duration_seconds_count{${HERE}}`),
            "{{kind}} {{outcome}}",
          ],
        ],
        { unit: "reqps", stack: true },
      ),
      graph(
        "Duration",
        "Until its whole answer is here.",
        [
          [quantile(0.5, "kind", `tollgate_upstream_duration_seconds_bucket{${HERE}}`), "p50 {{kind}}"],
          [quantile(0.99, "kind", `tollgate_upstream_duration_seconds_bucket{${HERE}}`), "p99 {{kind}}"],
        ],
        { unit: "s" },
      ),
      graph(
        "Its own limits, and its refusals of us",
        "Share of its answers that were 429, and answers that blame the gateway's credential or account.",
        [
          [
            `sum(rate(tollgate_upstream_duration_seconds_count{${HERE}, outcome=~"rate_limited|upstream_rate_limited"}[${RATE}])) / sum(rate(tollgate_upstream_duration_seconds_count{${HERE}}[${RATE}]))`,
            "share of 429",
          ],
          [rate(`tollgate_upstream_refused_gateway_total{${HERE}}`), "refuses the gateway, per second"],
          [
            rate(`tollgate_upstream_misrouted_polls_total{${HERE}}`),
            "404 or redirect that is not the API, per second",
          ],
          [
            rate(`tollgate_upstream_unusable_states_total{${HERE}}`),
            "states that are not understood, per second",
          ],
          [
            rate(`tollgate_upstream_unroutable_polls_total{${HERE}}`),
            "not sent: upstream unknown, per second",
          ],
        ],
        { unit: "short" },
      ),
    ],
  },
  {
    title: "The store",
    panels: [
      graph(
        "Usable",
        "By gateway: one alone away is a network matter, all are Redis.",
        [[`tollgate_store_up{${HERE}}`, "{{instance}}"]],
        { max: 1, w: 6 },
      ),
      graph(
        "Call duration",
        "99th percentile by script. Beyond `store.command_timeout` the store counts as away.",
        [[quantile(0.99, "script", `tollgate_store_call_duration_seconds_bucket{${HERE}}`), "{{script}}"]],
        { unit: "s", w: 6 },
      ),
      graph(
        "Calls",
        "Script calls by script.",
        [[rateBy("script", `tollgate_store_call_duration_seconds_count{${HERE}}`), "{{script}}"]],
        { unit: "ops", stack: true, w: 6 },
      ),
      graph(
        "Failures",
        "`open`: refused at once while the breaker was open; `refused`: Redis answers with an error, such as no memory left.",
        [[rateBy("reason", `tollgate_store_failures_total{${HERE}}`), "{{reason}}"]],
        { unit: "ops", w: 6 },
      ),
    ],
  },
  {
    title: "Webhooks",
    panels: [
      graph(
        "Deliveries",
        "Tries by what came of them. `retried` and `failed` far above `delivered`: receivers, or the way out.",
        [[rateBy("outcome", `tollgate_webhook_deliveries_total{${HERE}}`), "{{outcome}}"]],
        { unit: "ops", w: 6, stack: true },
      ),
      graph(
        "Oldest message due",
        "How long a message has been due without being taken, as the store has it: minutes mean that nobody sends.",
        [[`max(tollgate_webhook_overdue_seconds{${HERE}})`, "overdue"]],
        { unit: "s", w: 6, thresholds: upTo(30, 120) },
      ),
      graph(
        "Endpoints disabled",
        "In the last hour: they answered 410, or have failed for days.",
        [[`sum(increase(tollgate_webhook_deliveries_total{outcome="disabled",${HERE}}[1h]))`, "disabled"]],
        { w: 6 },
      ),
      graph(
        "Waiting and dropped",
        "Messages that wait for a try, and those that were dropped since too many waited, in the last hour.",
        [
          [`max(tollgate_webhook_deliveries_waiting{${HERE}})`, "waiting"],
          [`max(increase(tollgate_webhook_deliveries_dropped{${HERE}}[1h]))`, "dropped"],
        ],
        { w: 6 },
      ),
    ],
  },
  {
    title: "The process and its configuration",
    panels: [
      graph(
        "Event loop",
        "99th percentile of how late timers come; a quiet process has 0.1 s, which is the resolution.",
        [[`nodejs_eventloop_lag_p99_seconds{${HERE}}`, "{{instance}}"]],
        { unit: "s", w: 6, thresholds: upTo(0.2, 0.5) },
      ),
      graph("CPU", "Cores in use.", [[`rate(process_cpu_seconds_total{${HERE}}[${RATE}])`, "{{instance}}"]], {
        w: 6,
      }),
      graph(
        "Memory",
        "Resident, and used by JavaScript.",
        [
          [`process_resident_memory_bytes{${HERE}}`, "resident {{instance}}"],
          [`nodejs_heap_size_used_bytes{${HERE}}`, "heap {{instance}}"],
        ],
        { unit: "bytes", w: 6 },
      ),
      graph(
        "Open files and sockets",
        "Share of what the system allows.",
        [[`process_open_fds{${HERE}} / process_max_fds{${HERE}}`, "{{instance}}"]],
        { unit: "percentunit", w: 6, thresholds: upTo(0.7, 0.9) },
      ),
      graph(
        "Running since",
        "Falls to zero at each restart.",
        [[`time() - process_start_time_seconds{${HERE}}`, "{{instance}}"]],
        { unit: "s", w: 6 },
      ),
      graph(
        "Log lines dropped",
        "A full disk, or a reader of the log that has gone.",
        [[`rate(tollgate_log_lines_dropped_total{${HERE}}[${RATE}])`, "{{instance}}"]],
        { unit: "ops", w: 6 },
      ),
      graph(
        "Configurations in force",
        "Gateways by the hash of their configuration: more than one for long means that they do not agree.",
        [[`count by (hash) (tollgate_config_info{${HERE}})`, "{{hash}}"]],
        { w: 6 },
      ),
      graph(
        "Last good reload",
        "How long ago.",
        [[`time() - tollgate_config_last_reload_success_timestamp_seconds{${HERE}}`, "{{instance}}"]],
        { unit: "s", w: 6 },
      ),
    ],
  },
];
