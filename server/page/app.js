// The page as a whole: which model is served, what is being asked, and the settings that go with it.

import { apiKey, at, generate, getJson, health, setApiKey } from './api.js';
import { Turn } from './turn.js';

const $ = (selector) => document.querySelector(selector);
const fields = $('#fields');
const prompt = $('#prompt');
const send = $('#send');
const wide = matchMedia('(min-width: 64rem)');
const touch = matchMedia('(pointer: coarse)');

const EXAMPLES = {
  chat: ['Why is the sky blue? Two sentences, please.', 'Write a haiku about two riders on one bicycle.',
    'What is the difference between latency and throughput?'],
  completion: ['It is a truth universally acknowledged, that', 'It was a fine morning, and the two sisters',
    'The bicycle was invented'],
  ids: ['1 2 3 4 5 6 7 8'],
};

const turns = { chat: [], completion: [] };
let model = null;
let mode = 'completion';
let busy = null;  // {abort, turn} while an answer comes

const announce = (text) => { $('#status').textContent = text; };
const takesText = () => !model || model.prompts.includes('text');

function notify(text) {
  $('#notice').hidden = !text;
  $('#notice').textContent = text;
}

// ---- settings

const SAVED = 'tandem';

function save() {
  const values = { mode, route: $('#route').value };
  for (const field of fields.elements) if (field.name) values[field.name] = field.value;
  try {
    localStorage.setItem(SAVED, JSON.stringify(values));
  } catch { /* Without storage the settings last as long as the page. */ }
}

function restore() {
  let values = {};
  try {
    values = JSON.parse(localStorage.getItem(SAVED)) ?? {};
  } catch { /* as above */ }
  mode = values.mode === 'completion' ? 'completion' : 'chat';
  if (values.route) $('#route').value = values.route;
  for (const field of fields.elements) if (field.name in values) field.value = values[field.name];
  showNumbers();
}

function showNumbers() {
  for (const output of fields.querySelectorAll('output')) {
    output.value = Number(fields.elements[output.htmlFor.value].value).toFixed(2);
  }
}

function openSettings(open) {
  $('#settings').hidden = !open;
  $('#settings-button').ariaExpanded = String(open);
  document.body.dataset.settings = open ? 'open' : 'closed';
}

const fieldOf = (name) => (name === 'route' ? $('#route') : fields.elements.namedItem(name));
const labelOf = (name) => fieldOf(name)?.labels[0].firstChild.data.trim().toLowerCase();

function mend(name) {
  if (name !== 'route') openSettings(true);
  fieldOf(name).focus();
}

// ---- what is asked

function bodyFor(turn) {
  const body = {
    model: model.id, route: $('#route').value, stream: true, return_timing: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
  for (const name of ['temperature', 'top_p', 'top_k', 'repetition_penalty', 'max_tokens', 'seed']) {
    if (fields.elements[name].value !== '') body[name] = Number(fields.elements[name].value);
  }
  if (mode === 'completion') {
    body.prompt = takesText() ? turn.prompt : (turn.prompt.match(/\d+/g) ?? []).map(Number);
    body.return_token_ids = !takesText();
    return body;
  }
  body.messages = [];
  const system = fields.elements.system.value.trim();
  if (system) body.messages.push({ role: 'system', content: system });
  for (const earlier of turns.chat) {
    if (earlier === turn) break;
    if (!earlier.answer) continue;  // it failed, and the model has never seen it
    body.messages.push({ role: 'user', content: earlier.prompt }, { role: 'assistant', content: earlier.answer });
  }
  body.messages.push({ role: 'user', content: turn.prompt });
  return body;
}

// The end of the page stays in view while it grows, unless the reader has scrolled away from it.
function keepInView(change) {
  const page = document.documentElement;
  const follows = page.scrollHeight - page.clientHeight - page.scrollTop < 120;
  change();
  if (follows) page.scrollTop = page.scrollHeight;
}

async function run(turn) {
  const abort = new AbortController();
  busy = { abort, turn };
  showBusy();
  const body = bodyFor(turn);
  turn.begin(body.route);
  announce('Waiting for the answer.');
  document.documentElement.scrollTop = document.documentElement.scrollHeight;
  const frame = () => {
    if (busy?.turn !== turn) return;
    keepInView(() => turn.draw());
    requestAnimationFrame(frame);
  };
  frame();
  try {
    for await (const event of generate(mode === 'chat' ? 'v1/chat/completions' : 'v1/completions', body, abort.signal)) {
      turn.take(event);
    }
    keepInView(() => announce(turn.end()));
  } catch (error) {
    keepInView(() => announce(abort.signal.aborted ? turn.stop() : turn.fail(error)));
    if (error.status === 0 || error.status === 503) watch();
  }
  busy = null;
  showBusy();
}

function ask(text) {
  if (busy || !model || !text.trim()) return;
  if (!fields.checkValidity()) {
    openSettings(true);
    fields.reportValidity();
    return;
  }
  const turn = new Turn(mode, text, { again, edit, continue: goOn, mend, labelOf });
  turns[mode].push(turn);
  if (mode === 'chat') prompt.value = '';
  showTurns();
  run(turn);
}

function again(turn) {
  if (busy) return;
  send.focus({ preventScroll: true });
  run(turn);
}

function edit(turn) {
  if (busy) return;
  turns[mode] = turns[mode].filter((other) => other !== turn);
  write(turn.prompt);
  showTurns();
}

function goOn(turn) {
  write(turn.prompt + turn.answer);
}

function write(text) {
  prompt.value = text;
  prompt.focus();
  prompt.setSelectionRange(text.length, text.length);
}

// ---- what is shown

function showBusy() {
  send.textContent = busy ? 'Stop' : 'Send';
  send.classList.toggle('stops', Boolean(busy));
  document.body.dataset.busy = String(Boolean(busy));
  showHint();
}

function showHint() {
  const keys = mode === 'chat' ? 'Enter sends, Shift+Enter starts a line' : 'Ctrl+Enter sends';
  $('#hint').textContent = touch.matches ? '' : busy ? 'Esc stops' : keys;
}

function showTurns() {
  $('#turns').replaceChildren(...turns[mode].map((turn) => turn.element));
  $('#empty').hidden = turns[mode].length > 0 || !model;
  $('#clear').hidden = turns[mode].length === 0;
}

function showMode() {
  document.body.dataset.mode = mode;
  for (const radio of document.querySelectorAll('[name=mode]')) radio.checked = radio.value === mode;
  const chat = mode === 'chat';
  const label = chat ? 'Message' : takesText() ? 'Text to continue' : 'Token ids';
  $('#prompt-label').textContent = label;
  prompt.placeholder = chat ? `Message ${model?.id ?? ''}` : label;
  $('#empty-title').textContent = chat ? `Ask ${model?.id} something` : `Let ${model?.id} go on`;
  $('#empty-lead').textContent = 'Every answer comes with a receipt: which workers computed it, and what its first token waited for.'
    + (!takesText() ? ' This model has no tokenizer, so prompts and answers are token ids.'
      : model && !model.prompts.includes('messages') ? ' This model has no chat template, so it completes text.' : '');
  const examples = EXAMPLES[takesText() ? mode : 'ids'].map((text) => {
    const item = document.createElement('li');
    const button = item.appendChild(document.createElement('button'));
    button.type = 'button';
    button.textContent = text;
    button.onclick = () => write(text);
    return item;
  });
  $('#examples').replaceChildren(...examples);
  showHint();
  showTurns();
}

// ---- the server

async function loadModel() {
  const served = (await getJson('v1/models')).data[0];
  // What is shown stays as it is, with its focus, while the same model is served.
  if (model?.id === served.id && model.prompts.join() === served.prompts.join()) return;
  model = served;
  const chats = model.prompts.includes('messages');
  if (!chats) mode = 'completion';
  $('#modes').hidden = !chats;
  $('#model').textContent = model.id;
  $('#base').textContent = at('v1').href;
  document.title = `${model.id} · Tandem`;
  if (model.max_model_len > 0) fields.elements.max_tokens.max = model.max_model_len;
  showMode();
}

// Looks again until the server can answer, and says what is wrong meanwhile.
let watching = false;
async function watch() {
  if (watching) return;
  watching = true;
  for (;;) {
    const now = await health();
    const status = now === 'ready' ? await loadModel().then(() => 200, (error) => error.status) : 0;
    if (status === 200) break;
    if (status === 401) {
      notify('The server asks for an API key. Enter one that it knows under Settings.');
      openSettings(true);
      $('#api_key').focus();
      break;
    }
    notify(now === 'unreachable'
      ? `The server at ${location.host} does not answer. This page goes on by itself once it does.`
      : 'No worker is ready yet: they may be loading the model. This page goes on by itself once one is.');
    if (!model && now !== 'unreachable') await loadModel().catch(() => {});
    await new Promise((wake) => setTimeout(wake, 2000));
  }
  watching = false;
  if (!model) return;  // it asks for a key, and is looked for again once one is entered
  if (!$('#notice').hidden) announce('The server is ready.');
  notify('');
}

// ---- wiring

$('#composer').addEventListener('submit', (event) => {
  event.preventDefault();
  if (busy) busy.abort.abort();
  else ask(prompt.value);
});

prompt.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.isComposing) return;
  const asks = event.ctrlKey || event.metaKey || (mode === 'chat' && !event.shiftKey && !touch.matches);
  if (!asks) return;
  event.preventDefault();
  ask(prompt.value);
});

document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || event.isComposing) return;
  if (busy) {
    busy.abort.abort();
  } else if (!wide.matches && !$('#settings').hidden) {
    openSettings(false);
    $('#settings-button').focus();
  }
});

$('#modes').addEventListener('change', (event) => {
  busy?.abort.abort();
  mode = event.target.value;
  showMode();
  save();
});

$('#clear').addEventListener('click', () => {
  busy?.abort.abort();
  turns[mode] = [];
  showTurns();
  announce('The conversation is empty.');
  prompt.focus();
});

$('#settings-button').addEventListener('click', () => openSettings($('#settings').hidden));
$('#done').addEventListener('click', () => {
  openSettings(false);
  $('#settings-button').focus();
});
$('#defaults').addEventListener('click', () => {
  fields.reset();
  showNumbers();
  save();
  announce('The settings are as at first.');
});
$('#api_key').value = apiKey();
$('#api_key').addEventListener('change', () => {
  setApiKey($('#api_key').value);
  watch();
});
fields.addEventListener('input', showNumbers);
fields.addEventListener('change', save);
fields.addEventListener('submit', (event) => event.preventDefault());
$('#route').addEventListener('change', save);
wide.addEventListener('change', () => openSettings(wide.matches));
touch.addEventListener('change', showHint);

restore();
showMode();
openSettings(wide.matches);
if (!touch.matches) prompt.focus();
watch();
