"""What Anthropic's own client makes of our Messages API."""

import asyncio

import anthropic

import served

PROMPT = "It was a fine morning, and"
MESSAGES = [{"role": "user", "content": PROMPT}]


def check_whole_and_streamed(client, model):
    ask = dict(model=model, messages=MESSAGES, system="You tell stories.", max_tokens=24,
               extra_body={"temperature": 0.8, "seed": 7})
    whole = client.messages.create(**ask)
    text = whole.content[0].text
    assert whole.id.startswith("msg_") and whole.role == "assistant" and text
    assert whole.stop_reason in ("end_turn", "max_tokens"), whole.stop_reason
    assert whole._request_id and whole.id == "msg_" + whole._request_id
    events = list(client.messages.create(**ask, stream=True))
    assert events[0].type == "message_start" and events[-1].type == "message_stop"
    deltas = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    assert deltas == text, (deltas, text)
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == text
        final = stream.get_final_message()
    assert final.content[0].text == text and final.stop_reason == whole.stop_reason
    usage = final.usage
    assert usage.output_tokens == whole.usage.output_tokens
    assert usage.input_tokens + usage.cache_read_input_tokens == \
        whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    counted = client.messages.count_tokens(model=model, messages=MESSAGES,
                                           system="You tell stories.")
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def check_fields(client, model):
    first = client.messages.create(model=model, messages=MESSAGES, max_tokens=40,
                                   extra_body={"temperature": 0})
    text = first.content[0].text
    stop = text[len(text) // 2:][:3]
    stopped = client.messages.create(model=model, messages=MESSAGES, max_tokens=40,
                                     stop_sequences=[stop], metadata={"user_id": "me"},
                                     extra_body={"temperature": 0, "top_k": 5})
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop
    again = client.messages.create(
        model=model, max_tokens=8,
        messages=[*MESSAGES, {"role": "assistant", "content": first.content},
                  {"role": "user", "content": [{"type": "text", "text": "Go on."}]}])
    assert again.usage.output_tokens > 0
    continued = client.messages.create(
        model=model, max_tokens=8, messages=[*MESSAGES, {"role": "assistant", "content": "The sun"}])
    assert continued.usage.output_tokens > 0


def check_errors(client, model):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    for error, changes, says in [
            (anthropic.NotFoundError, dict(model="claude-7"), "claude-7"),
            (anthropic.BadRequestError, dict(max_tokens=10**6, stream=True), "max_tokens"),
            (anthropic.BadRequestError, dict(extra_body={"temperature": -1}), "temperature"),
            (anthropic.BadRequestError, dict(messages=[]), "messages"),
            (anthropic.BadRequestError,
             dict(messages=[{"role": "user", "content": [image]}]), "image"),
            (anthropic.BadRequestError,
             dict(tools=[{"type": "web_search_20250305", "name": "web_search"}]), "web_search")]:
        try:
            client.messages.create(
                **{**dict(model=model, messages=MESSAGES, max_tokens=8), **changes})
        except error as caught:
            assert caught.body["type"] == "error" and says in caught.body["error"]["message"]
        else:
            raise AssertionError(f"{changes} raised nothing")


async def check_many(url, model):
    client = anthropic.AsyncAnthropic(base_url=url, api_key="none")

    async def one(seed):
        async with client.messages.stream(model=model, messages=MESSAGES, max_tokens=16,
                                          extra_body={"seed": seed}) as stream:
            return await stream.get_final_text()

    texts = await asyncio.gather(*[one(i % 8) for i in range(32)])
    assert all(texts[i] == texts[i % 8] for i in range(32))


def check(url, model):
    client = anthropic.Anthropic(base_url=url, api_key="none")
    check_whole_and_streamed(client, model)
    check_fields(client, model)
    check_errors(client, model)
    asyncio.run(check_many(url, model))


if __name__ == "__main__":
    served.main(check)
