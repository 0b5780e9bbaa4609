// One prompt with its answer and its receipt. Text of people, model and server is only ever set as text.

import { explain } from './api.js';
import { element, partsOf } from './dom.js';
import { duration, plural } from './figures.js';
import { drawStages, stagesThatCount } from './stages.js';

// Works without a secure context as well, where browsers offer no clipboard.
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element('textarea', text, 'unseen');
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    button.focus();
  }
  const words = button.firstChild;
  words.data = 'Copied';
  setTimeout(() => { words.data = 'Copy'; }, 1500);
}

export class Turn {
  // `on` has again, edit and continue, which get this turn, and mend, which gets the name of a field.
  constructor(kind, prompt, on) {
    this.prompt = prompt;
    this.on = on;
    this.element = document.querySelector('#turn').content.firstElementChild.cloneNode(true);
    this.element.dataset.kind = kind;
    this.parts = partsOf(this.element);
    const { parts } = this;
    parts.heading.textContent = kind === 'chat' ? 'You' : 'Prompt';
    parts.said.textContent = prompt;
    parts.copy.onclick = () => copy(kind === 'chat' ? this.answer : prompt + this.answer, parts.copy);
    parts['copy-command'].onclick = () => copy(parts.command.textContent, parts['copy-command']);
    for (const action of ['again', 'edit', 'continue']) parts[action].onclick = () => on[action](this);
    this.clear();
  }

  clear() {
    const { parts } = this;
    this.answer = '';
    this.reasoning = '';
    this.calls = [];
    this.numTokens = 0;
    this.usage = null;
    this.timing = null;
    this.finish = null;
    this.firstAt = 0;
    this.hasFolded = false;
    for (const name of ['text', 'thought', 'tools', 'route', 'ttft', 'rate', 'tokens', 'ending', 'bar', 'rows']) {
      parts[name].replaceChildren();
    }
    for (const name of ['reasoning', 'tools', 'failure', 'mend', 'bar', 'table', 'more', 'actions', 'continue']) {
      parts[name].hidden = true;
    }
    if (this.element.dataset.kind === 'completion') parts.text.append(parts.said);  // one text
    this.text = parts.text.appendChild(new Text());
    this.thought = parts.thought.appendChild(new Text());
  }

  begin(route) {
    this.clear();
    this.route = route;
    this.startedAt = performance.now();
    this.element.dataset.state = 'waiting';
    this.parts.body.ariaBusy = 'true';
  }

  setRequestId(id) {
    this.parts.command.textContent = `tandem explain ${id}`;
    this.parts.more.hidden = !id;
  }

  // An event of the stream, kept until draw().
  take(event) {
    if (event.requestId !== undefined) return this.setRequestId(event.requestId);
    if (event.usage) {
      this.usage = event.usage;
      this.numTokens = event.usage.completion_tokens;
    }
    if (event.timing) this.timing = event.timing[0];
    const choice = event.choices?.[0];
    if (!choice) return;
    this.firstAt ||= performance.now();
    this.latestAt = performance.now();
    this.finish = choice.finish_reason ?? this.finish;
    const delta = choice.delta ?? {};
    this.answer += choice.text || delta.content || (choice.text === '' && choice.token_ids ? `${choice.token_ids.join(' ')} ` : '');
    this.reasoning += delta.reasoning_content ?? delta.reasoning ?? '';
    for (const call of delta.tool_calls ?? []) {
      const known = (this.calls[call.index ?? 0] ??= { name: '', arguments: '' });
      known.name += call.function?.name ?? '';
      known.arguments += call.function?.arguments ?? '';
    }
  }

  // Shows what has come; cheap enough for every frame.
  draw() {
    const { parts, text, thought } = this;
    const { dataset } = this.element;
    if (this.firstAt && dataset.state === 'waiting') dataset.state = 'streaming';
    text.appendData(this.answer.slice(text.length));
    if (this.reasoning.length > thought.length) {
      if (parts.reasoning.hidden) parts.reasoning.open = true;
      parts.reasoning.hidden = false;
      thought.appendData(this.reasoning.slice(thought.length));
    }
    // Thinking is over with the first word of the answer, unless the reader closed or opened it since.
    if (text.length > 0 && !this.hasFolded) {
      this.hasFolded = true;
      parts.reasoning.open = false;
    }
    if (this.calls.length > 0) {
      parts.tools.hidden = false;
      parts.tools.textContent = this.calls.map((call) => `${call.name}(${call.arguments})`).join('\n');
    }
    if (this.firstAt) {
      this.drawFigures();
    } else if (dataset.state === 'waiting') {
      parts.ttft.textContent = `waiting ${((performance.now() - this.startedAt) / 1000).toFixed(1)} s`;
    }
  }

  drawFigures() {
    const { parts, usage, timing } = this;
    const ttft = timing?.time_to_first_token_ms ?? this.firstAt - this.startedAt;
    parts.ttft.textContent = `${duration(ttft)} to the first token`;
    const perToken = timing?.mean_itl_ms || (this.latestAt - this.firstAt) / (this.numTokens - 1);
    if (this.numTokens > 1 && perToken > 0) {
      const rate = 1000 / perToken;
      parts.rate.textContent = `${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`;
    }
    const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
    parts.tokens.textContent = usage
      ? `${plural(usage.prompt_tokens, 'token')} in${cached ? ` (${cached} cached)` : ''}, ${this.numTokens} out` : '';
  }

  end() {
    if (this.timing) this.drawTiming(this.timing);
    if (this.finish === 'length') this.parts.ending.textContent = 'ended at the token limit';
    if (!this.answer && !this.reasoning && !this.calls.length) this.parts.ending.textContent = 'the model wrote nothing';
    this.close('done');
    return `Answer complete, ${plural(this.numTokens, 'token')}. ${this.answer.slice(0, 600)}`;
  }

  stop() {
    this.parts.ending.textContent = 'stopped by you';
    this.close('stopped');
    return 'Stopped.';
  }

  fail(failure) {
    const { parts } = this;
    const [what, advice] = explain(failure, this.route, this.firstAt > 0);
    parts.failure.hidden = false;
    parts.what.textContent = what;
    parts.advice.textContent = advice;
    parts.detail.textContent = failure.message;
    const field = failure.param && this.on.labelOf(failure.param);
    if (field) {
      parts.mend.hidden = false;
      parts.mend.textContent = `Change ${field}`;
      parts.mend.onclick = () => this.on.mend(failure.param);
    }
    if (failure.requestId) this.setRequestId(failure.requestId);
    this.close('failed');
    return `${what} ${advice} ${failure.message}`;
  }

  close(state) {
    this.draw();
    if (!this.firstAt) this.parts.ttft.textContent = '';
    this.element.dataset.state = state;
    this.parts.body.ariaBusy = 'false';
    this.parts.actions.hidden = false;
    this.parts.copy.hidden = this.answer === '';
    this.parts.continue.hidden = this.element.dataset.kind !== 'completion' || this.answer === '';
  }

  drawTiming(timing) {
    const { parts } = this;
    parts.route.append(element('span', `${timing.route}: `, 'unseen'));
    parts.route.append(element('span', timing.prefill_worker || timing.decode_worker, 'worker'));
    if (timing.decode_worker && timing.decode_worker !== timing.prefill_worker) {
      const hop = element('span', '', 'hop');
      hop.append(element('span', ' to ', 'unseen'));
      parts.route.append(hop, element('span', timing.decode_worker, 'worker'));
    }
    const ttftMs = timing.time_to_first_token_ms;
    const shown = stagesThatCount({ ...timing, queue_ms: timing.queue_time_ms });
    for (const { id, ms, name, meaning } of shown) {
      const row = document.createElement('tr');
      const head = element('th', name);
      head.scope = 'row';
      head.dataset.stage = id;
      row.append(head, element('td', duration(ms)), element('td', meaning));
      parts.rows.append(row);
    }
    drawStages(parts.bar, ttftMs, shown);
    parts.caption.textContent = `${duration(ttftMs)} to the first token, ${duration(timing.e2e_ms)} in all`;
    parts.table.hidden = shown.length === 0;
  }
}
