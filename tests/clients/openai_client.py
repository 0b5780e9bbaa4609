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
    echoed = client.completions.create(model=model, prompt=PROMPT, max_tokens=1, echo=True, logprobs=1)
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


async def check_many(url, model):
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none")

    async def one(seed):
        text = ""
        async for event in await client.completions.create(
                model=model, prompt=PROMPT, max_tokens=16, seed=seed, stream=True):
            text += event.choices[0].text
        return text

    texts = await asyncio.gather(*[one(i % 8) for i in range(64)])
    assert all(texts[i] == texts[i % 8] for i in range(64))


def check(url, model):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    check_models(client, model)
    check_completions(client, model)
    check_chats(client, model)
    check_errors(client, model)
    asyncio.run(check_many(url, model))


if __name__ == "__main__":
    served.main(check)
