// The workers, the links between them, and what is wrong with them.

import { Rows, setText } from './dom.js';
import { age, bytes, count, gigabytes, rate, share } from './figures.js';

const $ = (selector) => document.querySelector(selector);

// As `tandem status` calls it.
function stateOf(worker) {
  if (!worker.alive) return 'lost';
  if (worker.draining) return 'draining';
  if (worker.not_ready) return 'not ready';
  return worker.starting ? 'starting' : 'ready';
}

// A link that can be taken, unlike shared memory of another host or a transport that a worker lacks.
const isLink = (link) => link.peer !== '' && link.unreachable === '';

export const allLinks = (status) =>
  status.workers.flatMap((worker) => worker.links.filter(isLink).map((link) => ({ ...link, from: worker.name })));

// Blocks that sequences hold. Those that are only cached make room when it is needed.
export const heldBlocks = (worker) => worker.total_blocks - worker.free_blocks - worker.kv.idle_blocks;

export const readyWorkers = (status) => status.workers.filter((worker) => stateOf(worker) === 'ready').length;

// What a person should look at, the urgent first, as {key, text, urgent}. The key stays while the text changes.
export function problemsOf(status) {
  const urgent = [];
  const others = [];
  const add = (list, key, text) => list.push({ key, text, urgent: list === urgent });
  for (const worker of status.workers) {
    const who = `${worker.name} (${worker.role})`;
    const state = stateOf(worker);
    const key = `${worker.name} ${state}`;
    if (state === 'lost') add(urgent, key, `${who} is lost. Its latest report came ${age(worker.heartbeat_age_ms)} ago.`);
    if (state === 'not ready') add(urgent, key, `${who} is not ready: ${worker.not_ready}`);
    if (state === 'draining') add(others, key, `${who} finishes its requests and takes no new ones.`);
    if (state === 'starting') add(others, key, `${who} is starting. Others come first meanwhile.`);
  }
  for (const link of allLinks(status)) {
    const name = `${link.from} to ${link.peer} by ${link.transport}`;
    const why = link.failure || link.probe_failure;
    if (why) add(urgent, `link ${name}`, `The link from ${name} fails: ${why}`);
  }
  if (status.connections.full) add(urgent, 'connections', 'The gRPC port can take no more connections.');
  return [...urgent, ...others];
}

function fillWorker(parts, worker, rates, now) {
  const state = stateOf(worker);
  const held = heldBlocks(worker);
  setText(parts.name, worker.name);
  setText(parts.role, worker.role);
  setText(parts.device, worker.device);
  setText(parts.state, state);
  parts.state.dataset.state = state;
  setText(parts.running, count(worker.running));
  setText(parts.waiting, count(worker.waiting));
  setText(parts.kv, share(held, worker.total_blocks));
  parts.kv.title = `${count(held)} of ${count(worker.total_blocks)} blocks in use, `
    + `${count(worker.kv.idle_blocks)} more only cached`;
  parts.held.style.width = `${100 * held / Math.max(1, worker.total_blocks)}%`;
  parts.idle.style.width = `${100 * worker.kv.idle_blocks / Math.max(1, worker.total_blocks)}%`;
  setText(parts.hits, share(worker.kv.hit_tokens, worker.kv.query_tokens));
  const computed = rates.ofWorker(worker.name, now);
  setText(parts.prompt, rate(computed.prompt));
  setText(parts.generated, rate(computed.generated));
  setText(parts.heard, age(worker.heartbeat_age_ms));
}

function fillLink(parts, link) {
  const errors = [];
  if (link.failure || link.probe_failure) errors.push(link.failure || link.probe_failure);
  if (link.fallbacks > 0) errors.push(`${count(link.fallbacks)} fallbacks, the latest: ${link.fallback_reason}`);
  setText(parts.from, link.from);
  setText(parts.to, link.peer);
  setText(parts.over, link.transport);
  setText(parts.used, link.in_use ? 'yes' : 'no');
  setText(parts.probed, gigabytes(link.probe_gb_per_s));
  setText(parts.late, gigabytes(link.gb_per_s));
  setText(parts.bytes, bytes(link.bytes));
  setText(parts.flying, bytes(link.bytes_in_flight));
  setText(parts.resent, count(link.resent_frames));
  setText(parts.errors, errors.join('; ') || 'none');
  parts.errors.classList.toggle('alarm', errors.length > 0);
}

export class Fleet {
  constructor(rates) {
    this.rates = rates;
    this.workers = new Rows($('#workers'), $('#worker-row'),
      (parts, worker) => fillWorker(parts, worker, this.rates, this.now));
    this.links = new Rows($('#links'), $('#link-row'), fillLink);
  }

  show(status, now) {
    this.now = now;
    this.workers.show(status.workers, ({ name }) => name);
    const links = allLinks(status);
    this.links.show(links, ({ from, peer, transport }) => `${from}\n${peer}\n${transport}`);
    $('#no-workers').hidden = status.workers.length > 0;
    $('#no-links').hidden = links.length > 0;
    $('#links-table').hidden = links.length === 0;
    $('#more-links').hidden = status.links_left_out === 0;
    setText($('#more-links'), `${count(status.links_left_out)} more links: tandem status --links`);
  }
}
