"""What transformers' beam search finds, over models/sample and over a random tree of tokens."""

import itertools

import torch
import transformers
from transformers.modeling_outputs import CausalLMOutput

MIN_MARGIN = 5e-4  # in log-probability between two beams, at every decision of a search
SAMPLE_TOKENS = 48
TREE_VOCAB = 48
TREE_CASES = 240
MASK = (1 << 64) - 1


class Margins:
    """Watches a model's beam search and remembers its closest decision."""

    def __init__(self, model, stop_ids: list[int], settings):
        self.stop_ids, self.settings, self.closest = set(stop_ids), settings, float("inf")
        self.divisors = {}  # of each score that a hypothesis has had
        self._wrap(model, "_get_top_k_continuations", self._before_top_k, None)
        self._wrap(model, "_update_finished_beams", self._before_update, None)
        self._wrap(model, "_check_early_stop_heuristic", None, self._after_check)

    @staticmethod
    def _wrap(model, name, before, after):
        inner = getattr(type(model), name)
        bound = inner.__get__(model) if name != "_check_early_stop_heuristic" else inner

        def watched(**arguments):
            if before:
                before(**arguments)
            result = bound(**arguments)
            if after:
                after(**arguments)
            return result
        setattr(model, name, watched)

    def _note(self, higher, lower) -> None:
        self.closest = min(self.closest, abs(float(higher) - float(lower)))

    def _before_top_k(self, *, accumulated_log_probs, cur_len, decoder_prompt_len, beams_to_keep,
                      num_beams, **_) -> None:
        vocab = accumulated_log_probs.shape[-1] // num_beams
        top = accumulated_log_probs[0].topk(min(beams_to_keep + 1, vocab))
        sums = top.values.tolist()
        last = cur_len + 1 - decoder_prompt_len == self.settings.max_new_tokens
        ends = [last or i % vocab in self.stop_ids for i in top.indices.tolist()]
        if len(sums) > num_beams and any(ends[num_beams - 1:num_beams + 1]):
            self._note(sums[num_beams - 1], sums[num_beams])  # the last that may be a hypothesis
        live = [s for s, end in zip(sums, ends) if not end]
        if len(live) > num_beams:
            self._note(live[num_beams - 1], live[num_beams])

    def _before_update(self, *, beam_scores, is_sent_finished, topk_log_probs, num_beams, cur_len,
                       decoder_prompt_len, length_penalty, next_token_hits_stopping_criteria,
                       top_num_beam_mask, **_) -> None:
        divisor = (cur_len + 1 - decoder_prompt_len)**length_penalty
        ended = (topk_log_probs / divisor)[next_token_hits_stopping_criteria & top_num_beam_mask]
        self.divisors |= dict.fromkeys(ended.tolist(), divisor)
        scores = torch.cat((beam_scores[is_sent_finished], ended))
        best = scores.sort(descending=True).values[:num_beams + 1].tolist()
        for higher, lower in itertools.pairwise(best):
            self._note_scores(higher, self.divisors[higher], lower)

    def _note_scores(self, higher: float, divisor: float, lower: float) -> None:
        scale = min(divisor, self.divisors[lower])  # how far a log-probability moves a score
        self._note(higher * scale, lower * scale)

    def _after_check(self, *, running_beam_scores, beam_scores, is_sent_finished, cur_len,
                     max_length, decoder_prompt_len, early_stopping, length_penalty, **_) -> None:
        length = cur_len - decoder_prompt_len
        if early_stopping is True or not is_sent_finished.all() or cur_len == max_length:
            return
        if early_stopping == "never" and length_penalty > 0:
            length = max_length - decoder_prompt_len
        divisor = length**length_penalty
        self._note_scores(running_beam_scores[0, 0].item() / divisor, divisor,
                          beam_scores.min().item())


@torch.no_grad()
def search(model, prompt: list[int], stop_ids: list[int], settings: dict) -> dict:
    """One search; `closest` is how narrowly its closest decision was made."""
    config = transformers.GenerationConfig(
        **settings, do_sample=False, use_cache=False, eos_token_id=stop_ids or None,
        pad_token_id=stop_ids[0] if stop_ids else None, return_dict_in_generate=True,
        output_scores=True)
    margins = Margins(model, stop_ids, config)
    found = model.generate(torch.tensor([prompt]), generation_config=config)
    hypotheses = [{"ids": until_stop(ids[len(prompt):].tolist(), stop_ids),
                   "score": float(str(score.numpy()))}
                  for ids, score in zip(found.sequences, found.sequences_scores)]
    return {"prompt_ids": prompt, "stop_token_ids": stop_ids, **settings,
            "closest": round(margins.closest, 6), "hypotheses": hypotheses}


def until_stop(ids: list[int], stop_ids: list[int]) -> list[int]:
    """Shorter sequences of a batch are padded behind the token that ended them."""
    return ids[:next((i + 1 for i, token in enumerate(ids) if token in stop_ids), len(ids))]


def settings(width: int, n: int, length_penalty: float, early_stopping, max_tokens: int) -> dict:
    return {"num_beams": width, "num_return_sequences": n, "length_penalty": length_penalty,
            "early_stopping": early_stopping, "max_new_tokens": max_tokens}


def sample_cases(model, text_ids: list[int], stops: dict[str, list[int]]) -> list[dict]:
    """Prompts are windows of a text, moved on where a decision of the search is a close call."""
    cases, start = [], 0
    for index, (width, n, penalty, early, stop) in enumerate(SAMPLE_SETTINGS):
        length = SAMPLE_LENGTHS[index % len(SAMPLE_LENGTHS)]
        while True:
            prompt = [text_ids[(start + i) % len(text_ids)] for i in range(length)]
            case = search(model, prompt, stops[stop],
                          settings(width, n, penalty, early, SAMPLE_TOKENS))
            start += 7
            if case["closest"] >= MIN_MARGIN:
                break
            print(f"beams: passed over a prompt of {length}: decided by {case['closest']}")
        cases.append(case)
    return cases


SAMPLE_LENGTHS = (1, 5, 17, 48, 121, 200)
SAMPLE_SETTINGS = [
    (width, n, penalty, early, stop)
    for width in (2, 4, 8)
    for n, penalty, early, stop in (
        (width, 1.0, False, "end"), (1, 1.0, False, "period"), (width, 0.0, False, "comma"),
        (width, 2.0, False, "period"), (width, 1.0, True, "comma"), (1, 0.0, True, "period"),
        (width, 1.0, "never", "period"), (width, -0.5, False, "comma"),
        (1, -0.5, "never", "period"), (width, 0.0, "never", "period"),
        (width, 2.0, "never", "end"))
]


def mix(x: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class TreeConfig(transformers.PretrainedConfig):
    model_type = "tree"


class TreeModel(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Random logits in [-4, 4) that depend on every token so far; exact in float32."""

    config_class = TreeConfig

    def __init__(self):
        super().__init__(TreeConfig(vocab_size=TREE_VOCAB))
        self.place = torch.nn.Parameter(torch.zeros(1))  # generate asks a model for its device

    def forward(self, input_ids, **_):
        return CausalLMOutput(logits=torch.tensor([[self._row(ids)] for ids in input_ids.tolist()]))

    @staticmethod
    def _row(ids: list[int]) -> list[float]:
        state = 0
        for token in ids:
            state = mix(state ^ token)
        return [(mix(state + token) >> 40) / 2**21 - 4 for token in range(TREE_VOCAB)]


def tree_cases() -> list[dict]:
    """All kinds of settings in turn, each with a prompt of one number of its own."""
    kinds = zip(*map(itertools.cycle, (
        (2, 3, 4, 8, 16), (1.0, 0.0, 2.0, -0.5, 0.7, -3.0), (False, True, "never"),
        (12, 1, 5, 2, 12, 9, 7), (1, 12, 0, 2, 16, 5, 2, 9, 3, 20, 1))))
    cases, model = [], TreeModel().eval()
    for seed, (width, penalty, early, max_tokens, num_stops) in enumerate(kinds):
        stop_ids = sorted({mix(1000 * seed + i) % TREE_VOCAB for i in range(num_stops)})
        case = search(model, [seed], stop_ids, settings(width, width, penalty, early, max_tokens))
        if case["closest"] >= MIN_MARGIN:
            cases.append(case)
        if len(cases) == TREE_CASES:
            return cases
