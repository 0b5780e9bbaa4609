// The status page: asks for status.json about once a second, and shows what it says.

import { explain, Failure, getJson, setApiKey } from './api.js';
import { Chart } from './chart.js';
import { partsOf, Rows, setText } from './dom.js';
import { age, count, duration, rate, share, UNKNOWN } from './figures.js';
import { Fleet, heldBlocks, problemsOf, readyWorkers } from './fleet.js';
import { showLists } from './lists.js';
import { Rates } from './rates.js';
import { Requests } from './requests.js';

const $ = (selector) => document.querySelector(selector);

const PATH = 'status.json?decisions=20';
const INTERVAL_MS = 1000;
const INTERVAL_HIDDEN_MS = 15e3;
const MOST_RETRY_MS = 10e3;
const TIMEOUT_MS = 5000;
// An answer that took long costs the server or the network much, so the next one is not asked for at once.
const REST_PER_ANSWER = 4;

const rates = new Rates();
const fleet = new Fleet(rates);
const requests = new Requests();
const problems = new Rows($('#problems'), $('#problem'), (parts, { text, urgent }) => {
  setText(parts.text, text);
  parts.text.dataset.urgent = String(urgent);
});
const tiles = partsOf($('.tiles'));
const tokensChart = new Chart($('#tokens-chart'), [['prompt', 'prompt'], ['generated', 'generated']]);
const requestsChart = new Chart($('#requests-chart'), [['requests', 'taken'], ['refused', 'refused']]);

let latest = null;  // {at, time}: when the status that is shown came
let failures = 0;   // since then
let state = 'waiting';  // 'live', 'stale', 'locked' (a key is missing), 'paused'

// ---- what is shown

// Heard by screen readers, so only what changes what a person would do.
let told = '';
function tell(status, found) {
  const news = [status.ready ? 'Serving.' : 'Not serving.', ...found.map(({ text }) => text)].join(' ');
  const key = [status.ready, ...found.map((problem) => problem.key)].join('\n');
  if (told !== '' && told !== key) $('#news').textContent = news;
  told = key;
}

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted.length > 0 ? sorted[Math.floor(sorted.length / 2)] : null;
}

function showTiles(status) {
  const now = rates.latest();
  const blocks = status.workers.reduce((sum, worker) => sum + worker.total_blocks, 0);
  const held = status.workers.reduce((sum, worker) => sum + heldBlocks(worker), 0);
  const ttft = median((status.requests ?? []).map((request) => request.outcome?.finish?.stages.ttft_ms)
    .filter((ms) => ms !== undefined));
  const error = status.predictions.errors.find(({ term }) => term === 'ttft');
  setText(tiles.flying, count(status.requests_in_flight));
  setText(tiles.requests, rate(now.requests));
  setText(tiles.refused, rate(now.refused));
  tiles.refused.classList.toggle('alarm', now.refused > 0);
  setText(tiles.generated, rate(now.generated));
  setText(tiles.workers, `${readyWorkers(status)} of ${status.workers.length}`);
  setText(tiles.kv, share(held, blocks));
  setText(tiles.ttft, ttft === null ? UNKNOWN : duration(ttft));
  setText(tiles.error, error ? `${(100 * error.error).toFixed(0)}%` : UNKNOWN);
}

function showVerdict(status) {
  const found = problemsOf(status);
  setText($('#verdict'), status.ready ? 'Serving' : 'Not serving');
  $('#verdict').dataset.ready = String(status.ready);
  setText($('#model'), status.model);
  setText($('#facts'), `Routes: ${status.routes.join(', ') || 'none'}. Policy ${status.routing.policy}. `
    + `Context ${count(status.max_context_tokens)} tokens. Version ${status.version}.`);
  problems.show(found, ({ key }) => key);
  $('#problems').hidden = found.length === 0;
  document.title = `${status.ready ? '' : 'Not serving \u00b7 '}${status.model} \u00b7 Tandem status`;
  tell(status, found);
}

function show(status) {
  const now = performance.now();
  rates.add(status, now);
  showVerdict(status);
  showTiles(status);
  tokensChart.draw(rates.points, now);
  requestsChart.draw(rates.points, now);
  fleet.show(status, now);
  requests.show(status);
  showLists(status);
  $('#all').hidden = false;
}

function showFailure(what, advice, { asksForKey = false } = {}) {
  $('#failure').hidden = false;
  setText($('#failure-what'), what);
  setText($('#failure-advice'), advice);
  $('#key-form').hidden = !asksForKey;
}

// Runs every second, so that the age of stale data is right.
function showClock() {
  const isStale = state === 'stale' || state === 'locked';
  const prefix = isStale ? 'Stale, as' : state === 'paused' ? 'Paused, as' : 'As';
  setText($('#updated'), latest ? `${prefix} of ${latest.time}` : '');
  setText($('#failure-since'), latest && isStale
    ? `What is below is stale: it is as of ${latest.time}, ${age(performance.now() - latest.at)} ago.` : '');
}

function enter(next) {
  state = next;
  document.body.dataset.state = next;
  $('#pause').hidden = latest === null || next === 'locked';
  setText($('#pause'), next === 'paused' ? 'Resume' : 'Pause');
  if (next === 'live') $('#failure').hidden = true;
  showClock();
}

// ---- asking

function lock(status) {
  const [what, advice] = status === 401
    ? ['The router asks for an API key.', 'Enter one with the scope admin. It is kept until this tab is closed.']
    : ['This API key may not see the status.', 'It shows what concerns all tenants. Enter a key that was made with '
      + 'tandem keys add FILE --id NAME --tenant NAME --scope generate,admin'];
  showFailure(what, advice, { asksForKey: true });
  enter('locked');
  $('#api_key').value = '';
  $('#api_key').focus();
}

function onFailure(error) {
  ++failures;
  rates.interrupt();
  if (error.status === 401 || error.status === 403) return lock(error.status);
  if (error instanceof Failure) {
    const [what, advice] = explain(error, 'auto', false);
    showFailure(what, `${advice} This page goes on by itself once it has an answer. ${error.status > 0 ? error.message : ''}`);
  } else {
    showFailure('This page does not understand the answer.', `Reload it: the router may be of another version by now. ${error.message}`);
    console.error(error);
  }
  enter('stale');
}

let timer = 0;
let asking = false;

async function ask() {
  clearTimeout(timer);
  if (asking || state === 'paused') return;
  asking = true;
  const begun = performance.now();
  try {
    const status = await getJson(PATH, TIMEOUT_MS);
    if (state !== 'paused') onStatus(status);
  } catch (error) {
    if (state !== 'paused') onFailure(error);
  }
  asking = false;
  if (state !== 'locked' && state !== 'paused') timer = setTimeout(ask, restAfter(performance.now() - begun));
}

function onStatus(status) {
  show(status);
  failures = 0;
  latest = { at: performance.now(), time: new Date().toLocaleTimeString() };
  enter('live');
}

function restAfter(tookMs) {
  const retry = failures > 0 ? Math.min(MOST_RETRY_MS, INTERVAL_MS * 2 ** (failures - 1)) : INTERVAL_MS;
  const rest = Math.max(retry, failures > 0 ? 0 : REST_PER_ANSWER * tookMs - tookMs);
  return document.hidden ? Math.max(INTERVAL_HIDDEN_MS, rest) : rest;
}

// ---- wiring

document.addEventListener('visibilitychange', () => {
  if (!document.hidden && state !== 'locked') ask();
});
addEventListener('online', () => {
  if (state === 'stale') ask();
});
$('#pause').addEventListener('click', () => {
  if (state !== 'paused') {
    rates.interrupt();
    return enter('paused');
  }
  enter('live');
  ask();
});
$('#key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  setApiKey($('#api_key').value);
  ask();
});
setInterval(showClock, 1000);
ask();
