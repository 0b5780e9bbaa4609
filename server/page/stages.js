// The stages of the time to the first token, as both pages show them.

import { duration } from './figures.js';

// In the order of time, with the names of the message Stages.
const STAGES = [
  ['earlier', 'earlier_attempts_ms', 'Earlier tries', 'at workers that refused or lost it'],
  ['reserve', 'reserve_ms', 'Reserve', 'asking a decode worker for room'],
  ['admission', 'admission_ms', 'Admission', 'the decode worker had no room yet'],
  ['queue', 'queue_ms', 'Queue', 'other prompts were before this one'],
  ['prefill', 'prefill_ms', 'Prefill', 'computing the prompt'],
  ['transfer', 'transfer_ms', 'Transfer', 'sending KV to the decode worker'],
  ['first', 'first_token_ms', 'First token', 'handing it to the stream'],
  ['residual', 'residual_ms', 'The rest', 'tokenizing, routing, the network'],
];

// {id, ms, name, meaning} of the stages that took time.
export function stagesThatCount(stages) {
  return STAGES.map(([id, field, name, meaning]) => ({ id, ms: stages[field], name, meaning }))
    .filter(({ ms }) => ms >= 0.005);
}

// Makes `bar` show these stages, each as wide as its share.
export function drawStages(bar, ttftMs, shown) {
  bar.replaceChildren(...shown.map(({ id, ms, name }) => {
    const segment = document.createElement('i');
    segment.dataset.stage = id;
    segment.style.flexGrow = ms;
    segment.title = `${name} ${duration(ms)}`;
    return segment;
  }));
  bar.ariaLabel = `${duration(ttftMs)} to the first token: `
    + shown.map(({ ms, name }) => `${name} ${duration(ms)}`).join(', ');
  bar.hidden = shown.length === 0;
}
