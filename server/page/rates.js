// How fast the counters of a status rise. The server only counts; this page remembers what it has seen.

export const WINDOW_MS = 300e3;  // that charts show

const MEAN_OVER_MS = 4000;  // the least time that a rate is the mean of
const SILENT_MS = 6000;     // who has not reported for so long adds nothing
const SAME_REPORT_MS = 200;

// The rate of one counter. It begins anew when the process that counts does.
class Slope {
  samples = [];
  life = '';

  add(at, value, life = '') {
    const last = this.samples.at(-1);
    if (last && (life !== this.life || value < last.value)) this.samples = [];
    else if (last && at - last.at < SAME_REPORT_MS) return;
    this.life = life;
    this.samples.push({ at, value });
    while (this.samples.length > 2 && at - this.samples[1].at >= MEAN_OVER_MS) this.samples.shift();
  }

  // Per second; null while only one value is known.
  rate(now) {
    if (this.samples.length < 2) return null;
    const first = this.samples[0];
    const last = this.samples.at(-1);
    if (now - last.at > SILENT_MS) return 0;
    return 1000 * (last.value - first.value) / (last.at - first.at);
  }
}

// [field of `admission`, words]
export const REFUSALS = [
  ['refused_in_flight', 'the router was full'],
  ['refused_tenant_share', 'the tenant had its share of a nearly full router'],
  ['refused_tenant_in_flight', 'the tenant had too many in flight'],
  ['refused_tenant_requests', 'the tenant\u2019s requests per minute'],
  ['refused_tenant_tokens', 'the tenant\u2019s tokens per minute'],
  ['shed_deadline', 'it would have begun after its deadline'],
  ['shed_slo', 'it would have missed its TTFT limit'],
];

const refusedBy = (status) =>
  REFUSALS.reduce((sum, [field]) => sum + status.admission[field], status.tokenizing.refused);

const sum = (numbers) => {
  const known = numbers.filter((number) => number !== null);
  return known.length > 0 ? known.reduce((a, b) => a + b, 0) : null;
};

export class Rates {
  points = [];  // {at, prompt, generated, requests, refused, begins}: a line begins there
  workers = new Map();
  requests = new Slope();
  refused = new Slope();
  begins = true;

  // `now` in milliseconds of a clock that never jumps.
  add(status, now) {
    const workers = new Map();
    for (const worker of status.workers) {
      const slopes = this.workers.get(worker.name) ?? { prompt: new Slope(), generated: new Slope() };
      const at = now - worker.heartbeat_age_ms;
      slopes.prompt.add(at, worker.prompt_tokens, worker.pid);
      slopes.generated.add(at, worker.output_tokens, worker.pid);
      workers.set(worker.name, slopes);
    }
    this.workers = workers;
    this.requests.add(now, status.requests_total);
    this.refused.add(now, refusedBy(status));
    const all = [...workers.values()];
    this.points.push({
      at: now, begins: this.begins,
      prompt: sum(all.map(({ prompt }) => prompt.rate(now))),
      generated: sum(all.map(({ generated }) => generated.rate(now))),
      requests: this.requests.rate(now), refused: this.refused.rate(now),
    });
    this.begins = false;
    while (now - this.points[0].at > WINDOW_MS) this.points.shift();
  }

  // Nothing is known of the time until the next status.
  interrupt() {
    this.begins = true;
  }

  latest() {
    return this.points.at(-1);
  }

  // {prompt, generated}: tokens per second, null where not known.
  ofWorker(name, now) {
    const { prompt, generated } = this.workers.get(name);
    return { prompt: prompt.rate(now), generated: generated.rate(now) };
  }
}
