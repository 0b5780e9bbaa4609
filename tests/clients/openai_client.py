"""What OpenAI's own client makes of our answers."""

import asyncio

import openai

import served

PROMPT = "It was a fine morning, and"


def check_models(client, model):
    assert [one.id for one in client.models.list()] == [model]
    assert client.models.retrieve(model).id == model


def check_completions(client, model):
    ask = dict(model=model, prompt=PROMPT, max_tokens=24, temperature=0.8, seed=7)
    whole = client.completions.create(**ask, n=2, logprobs=2)
    assert len(whole.choices) == 2
    first = whole.choices[0]
    assert whole.id.startswith("cmpl-") and first.finish_reason in ("stop", "length")
    assert len(first.logprobs.tokens) == len(first.logprobs.token_logprobs)
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    events = list(client.completions.create(
        **ask, n=2, stream=True, stream_options={"include_usage": True}))
    texts = ["", ""]
    for event in events:
        for choice in event.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert events[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({event.id for event in events}) == 1
    echoed = client.completions.create(model=model, prompt=PROMPT, max_tokens=1, echo=True,
                                       logprobs=1)
    assert echoed.choices[0].text.startswith(PROMPT)
    assert echoed.choices[0].logprobs.token_logprobs[0] is None


def check_chats(client, model):
    ask = dict(model=model, messages=[{"role": "user", "content": PROMPT}],
               max_completion_tokens=24, temperature=0.8, seed=7)
    whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
    message = whole.choices[0].message
    assert message.role == "assistant" and whole.id.startswith("chatcmpl-")
    content = whole.choices[0].logprobs.content
    assert all(len(token.top_logprobs) == 2 for token in content)
    joined = b"".join(bytes(token.bytes) for token in content)
    assert message.content in joined.decode(errors="replace")
    streamed = "".join(event.choices[0].delta.content or ""
                       for event in client.chat.completions.create(**ask, stream=True))
    assert streamed == message.content, (streamed, message.content)
    with client.chat.completions.stream(**ask) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        assert "".join(deltas) == message.content


def check_errors(client, model):
    for error, changes in [
            (openai.NotFoundError, dict(model="gpt-7")),
            (openai.BadRequestError, dict(temperature=-1)),
            (openai.BadRequestError, dict(max_tokens=10**6)),
            (openai.BadRequestError, dict(suffix="end"))]:
        try:
            client.completions.create(**{**dict(model=model, prompt=PROMPT), **changes})
        except error as caught:
            assert caught.body["message"] and caught.body["param"] in changes, caught.body
        else:
            raise AssertionError(f"{changes} raised nothing")


def check_several(client, model):
    """Several prompts and several choices in one request, whose events come mixed."""
    ask = dict(model=model, prompt=[PROMPT, PROMPT + " Emma"], max_tokens=12, seed=7, n=3)
    whole = client.completions.create(**ask)
    assert [choice.index for choice in whole.choices] == list(range(6))
    texts = [""] * 6
    for event in client.completions.create(**ask, stream=True):
        for choice in event.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    chats = client.chat.completions.create(model=model, messages=[{"role": "user", "content": PROMPT}],
                                           max_tokens=12, seed=7, n=4)
    assert len({choice.message.content for choice in chats.choices}) > 1


def check_ends(client, model):
    long = dict(model=model, prompt=PROMPT, max_tokens=64, temperature=0)
    text = client.completions.create(**long).choices[0].text
    stop = text[10:13]
    cut = client.completions.create(**long, stop=[stop]).choices[0]
    assert cut.finish_reason == "stop" and stop not in cut.text and text.startswith(cut.text)
    biased = client.completions.create(**{**long, "max_tokens": 4}, logit_bias={"11": 100}, logprobs=0,
                                       extra_body={"return_token_ids": True})
    assert biased.choices[0].token_ids == [11] * 4, biased.choices[0]


def check_timeout(client, url, model):
    """A client that gives up takes its request off the server."""
    served.wait_for_load(url, 0)
    # Thousands of tokens take longer than the client waits; it does not try again.
    long = dict(model=model, prompt=PROMPT, max_tokens=400, extra_body={"ignore_eos": True}, n=32)
    try:
        client.with_options(timeout=0.2, max_retries=0).completions.create(**long)
    except openai.APITimeoutError:
        pass
    else:
        raise AssertionError("12,800 tokens took less than 0.2 s: ask for more")
    served.wait_for_load(url, 0)
    stream = client.completions.create(**long, stream=True)
    next(iter(stream))
    assert served.load(url) > 0
    stream.close()
    served.wait_for_load(url, 0)


async def check_many(url, model):
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0)

    async def completion(seed):
        text = ""
        async for event in await client.completions.create(
                model=model, prompt=PROMPT, max_tokens=16, seed=seed, stream=True):
            text += event.choices[0].text
        return text

    async def chat(seed):
        text = ""
        async for event in await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": PROMPT}], max_tokens=16, seed=seed, stream=True):
            text += event.choices[0].delta.content or ""
        return text

    for one in (completion, chat):
        texts = await asyncio.gather(*[one(i % 8) for i in range(200)])
        assert all(texts[i] == texts[i % 8] for i in range(200))
    await client.close()


def check(url, model):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    check_models(client, model)
    check_completions(client, model)
    check_chats(client, model)
    check_several(client, model)
    check_ends(client, model)
    check_errors(client, model)
    check_timeout(client, url, model)
    asyncio.run(check_many(url, model))


if __name__ == "__main__":
    served.main(check)
