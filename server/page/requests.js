// The latest requests: where they went, what was predicted, and what came true.

import { at, getText } from './api.js';
import { element, Rows, setText } from './dom.js';
import { age, count, duration, plural, UNKNOWN } from './figures.js';
import { drawStages, stagesThatCount } from './stages.js';

const $ = (selector) => document.querySelector(selector);

const placement = ({ prefill_worker: prefill, decode_worker: decode }) =>
  (decode === '' || decode === prefill ? prefill : `${prefill} \u2192 ${decode}`);

const time = (ms) => (ms === undefined || ms === null ? UNKNOWN : duration(ms));

const addressOf = (id) => `explain/${encodeURIComponent(id)}`;

const chosenOf = (decision) => decision?.candidates[decision.chosen];

// "OK", or the code without its message.
const outcome = (request) => request.outcome?.status.split(':')[0] ?? 'in flight';

// Several requests may have the same id: the newest is the first of them, as for `tandem explain`.
function withKeys(requests) {
  const seen = new Map();
  return requests.map((request) => {
    const before = seen.get(request.request_id) ?? 0;
    seen.set(request.request_id, before + 1);
    return { ...request, key: `${request.request_id}\n${before}` };
  });
}

function cells(tag, texts) {
  const row = document.createElement('tr');
  row.append(...texts.map((text) => element(tag, text)));
  return row;
}

// What one decision chose among.
function decisionPart(decision) {
  const part = document.createElement('div');
  const cause = decision.cause === 'arrival' ? 'On arrival' : `Later, because it was ${decision.cause}`;
  part.append(element('p', `${cause}, ${duration(decision.decided_ms)} after it came: `
    + `${plural(decision.placements, 'placement')} compared.${decision.reason ? ` Taken: ${decision.reason}.` : ''}`));
  const table = document.createElement('table');
  const head = cells('th', ['Placement', 'TTFT', 'TPOT', 'End to end', 'Cost']);
  for (const cell of head.children) cell.scope = 'col';
  table.append(document.createElement('thead'), document.createElement('tbody'));
  table.tHead.append(head);
  decision.candidates.forEach((candidate, index) => {
    const guess = candidate.predicted;
    const cost = candidate.cost_is_ms ? duration(candidate.cost) : String(Number(candidate.cost.toPrecision(4)));
    const row = cells('td', [`${placement(candidate)}${index === decision.chosen ? ' (taken)' : ''}`,
      time(guess?.ttft_ms), time(guess?.tpot_ms), time(guess?.e2e_ms), cost]);
    row.classList.toggle('taken', index === decision.chosen);
    table.tBodies[0].append(row);
  });
  table.append(element('caption', 'What was predicted', 'unseen'));
  const scroll = element('div', '', 'scroll');  // on a phone it is wider than the page
  scroll.tabIndex = 0;
  scroll.role = 'group';
  scroll.ariaLabel = 'Placements that were compared';
  scroll.append(table);
  part.append(scroll);
  return part;
}

function details(request) {
  const parts = request.decisions.map(decisionPart);
  const finish = request.outcome?.finish;
  if (finish) {
    const stages = stagesThatCount(finish.stages).map(({ name, ms }) => `${name} ${duration(ms)}`);
    parts.push(element('p', `To the first token: ${stages.join(', ') || UNKNOWN}.`));
  }
  if (request.outcome && request.outcome.status !== 'OK') parts.push(element('p', request.outcome.status, 'alarm'));
  if (request.outcome?.not_compared) parts.push(element('p', `No prediction was compared: ${request.outcome.not_compared}.`));
  return parts;
}

function fillTimes(parts, request) {
  const finish = request.outcome?.finish;
  const guess = chosenOf(request.decisions.at(-1))?.predicted;
  setText(parts.ttft, time(finish?.stages.ttft_ms));
  setText(parts.ttftGuess, time(guess?.ttft_ms));
  setText(parts.e2e, time(finish?.e2e_ms));
  setText(parts.e2eGuess, time(guess?.e2e_ms));
  const shape = finish ? JSON.stringify(finish.stages) : '';
  if (parts.bar.dataset.shape === shape) return;
  parts.bar.dataset.shape = shape;
  parts.bar.hidden = !finish;
  if (finish) drawStages(parts.bar, finish.stages.ttft_ms, stagesThatCount(finish.stages));
}

export class Requests {
  constructor() {
    this.open = new Set();  // keys of requests whose details are shown
    this.rows = new Rows($('#requests-table'), $('#request-rows'), (parts, request) => this.fill(parts, request));
    $('#explanation-close').addEventListener('click', () => $('#explanation').close());
  }

  show(status) {
    const requests = withKeys(status.requests ?? []);
    this.rows.show(requests, ({ key }) => key);
    for (const key of this.open) if (!this.rows.rows.has(key)) this.open.delete(key);
    $('#no-requests').hidden = requests.length > 0;
    setText($('#no-requests'), status.requests === null
      ? `They could not be read: ${status.requests_missing}` : 'None was sent to a worker yet.');
    $('#requests-table').hidden = requests.length === 0;
    $('#stages-legend').hidden = requests.length === 0;
  }

  fill(parts, request) {
    const finish = request.outcome?.finish;
    const latest = request.decisions.at(-1);
    setText(parts.id, request.request_id);
    parts.id.href = at(addressOf(request.request_id)).href;
    parts.id.onclick = (event) => this.explain(event, request.request_id);
    setText(parts.age, age(request.age_ms));
    const chosen = finish ?? chosenOf(latest);
    setText(parts.placement, chosen ? placement(chosen) : UNKNOWN);
    setText(parts.tokens, `${count(request.prompt_tokens)} in, ${finish ? count(finish.completion_tokens) : UNKNOWN} out`);
    setText(parts.outcome, outcome(request));
    parts.outcome.classList.toggle('alarm', request.outcome !== null && request.outcome.status !== 'OK');
    fillTimes(parts, request);
    setText(parts.others, plural(request.decisions.reduce((sum, { placements }) => sum + placements, 0), 'placement'));
    parts.more.onclick = () => this.toggle(parts, request);
    if (this.open.has(request.key)) this.showDetails(parts, request);
  }

  toggle(parts, request) {
    const opens = !this.open.has(request.key);
    if (opens) this.open.add(request.key);
    else this.open.delete(request.key);
    parts.more.ariaExpanded = String(opens);
    parts.details.hidden = !opens;
    if (opens) this.showDetails(parts, request);
  }

  showDetails(parts, request) {
    // Only what is new is drawn, so that a reader may select text meanwhile.
    const shape = JSON.stringify([request.decisions, request.outcome]);
    if (parts.why.dataset.shape === shape) return;
    parts.why.dataset.shape = shape;
    parts.why.replaceChildren(...details(request));
  }

  // What `tandem explain` says, which a plain link could not get where a key is asked for.
  async explain(event, id) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    setText($('#explanation-title'), `Request ${id}`);
    setText($('#explanation-text'), 'Asking the router.');
    $('#explanation').showModal();
    try {
      setText($('#explanation-text'), await getText(`${addressOf(id)}?columns=100`));
    } catch (error) {
      setText($('#explanation-text'), error.message || 'The router does not answer.');
    }
  }
}
