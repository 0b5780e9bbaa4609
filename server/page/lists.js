// Routing, refusals and connections: counts since the router started, as pairs of name and value.

import { Rows, setText } from './dom.js';
import { bytes, count, duration, share } from './figures.js';
import { REFUSALS } from './rates.js';

const $ = (selector) => document.querySelector(selector);

const list = (selector) => new Rows($(selector), $('#pair'), (parts, [name, value]) => {
  setText(parts.name, name);
  setText(parts.value, value);
});

const lists = { routing: list('#routing'), admission: list('#admission'), connections: list('#connections') };

// Pairs whose number is 0 would only be in the way.
const counted = (pairs) => pairs.filter(([, number]) => number > 0).map(([name, number]) => [name, count(number)]);

function routing({ routing: use, predictions, resumes, reroutes, output_lengths: lengths }) {
  const limit = (ms) => (ms > 0 ? duration(ms) : 'none');
  const errors = predictions.errors.filter(({ term }) => ['ttft', 'tpot', 'e2e'].includes(term))
    .map(({ term, error, compared }) => [`${term.toUpperCase()} predictions off by`,
      `${(100 * error).toFixed(1)}%, ${count(compared)} compared`]);
  return [['Policy', use.policy], ['TTFT limit', limit(use.ttft_slo_ms)], ['TPOT limit', limit(use.tpot_slo_ms)],
    ['To one worker', count(use.unified)], ['To two workers', count(use.disaggregated)],
    ...counted([['To the lowest cost', use.lowest_cost], ['To a less loaded one, within the error', use.within_error],
      ['To the least loaded, without measured costs', use.not_measured]]),
    ...(use.missing ? [['Now not known', use.missing]] : []), ...errors,
    ...(lengths.stopped + lengths.capped > 0 ? [['Output length predicted', lengths.predicted_tokens.toFixed(0)],
      ['Output length actual', lengths.mean_tokens.toFixed(0)]] : []),
    ...counted([['Resumed after a loss', resumes.lost], ['Moved off leaving workers', resumes.migrated],
      ['Gave up after a loss', resumes.gave_up], ['Rerouted for want of room',
        reroutes.other_worker + reroutes.to_unified + reroutes.to_disaggregated + reroutes.asked_again]])];
}

function admission({ requests_in_flight: flying, requests_total: total, admission: use, access, tokenizing }) {
  return [['In flight now', count(flying)], ['Taken', count(total)], ['Tenants in flight now', count(use.active_tenants)],
    ...REFUSALS.map(([field, words]) => [`Refused: ${words}`, count(use[field])]),
    ['Refused: too much text waited to be tokenized', count(tokenizing.refused)],
    ...counted([['No API key', access.refused_missing], ['Unknown API key', access.refused_unknown],
      ['API key without the scope', access.refused_scope]])];
}

function connections({ connections: grpc, http, answers, tls_refusals: tls, log_lines_dropped: lines }) {
  return [['gRPC, open', `${count(grpc.open)} of ${count(grpc.limit)}`],
    ['HTTP, open', `${count(http.open)} of ${count(http.limit)}`],
    ['HTTP requests', count(http.requests)],
    ['Answers that clients have not read', `${bytes(answers.bytes)}, ${share(answers.bytes, answers.limit_bytes)} of the limit`],
    ...counted([['gRPC, refused', grpc.refused], ['HTTP, refused', http.refused], ['HTTP, closed for others', http.evicted],
      ['Answers ended unread', answers.refused + answers.unread], ['Log lines dropped', lines]]),
    ...tls.map(({ port, reason, refused }) => [`Refused by TLS: ${port}, ${reason}`, count(refused)])];
}

export function showLists(status) {
  lists.routing.show(routing(status), ([name]) => name);
  lists.admission.show(admission(status), ([name]) => name);
  lists.connections.show(connections(status), ([name]) => name);
}
