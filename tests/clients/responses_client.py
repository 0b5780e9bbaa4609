"""What OpenAI's own client makes of our Responses API."""

import openai

import served

PROMPT = "It was a fine morning, and"


def check_whole_and_streamed(client, model):
    ask = dict(model=model, input=PROMPT, instructions="You tell stories.", max_output_tokens=24,
               temperature=0.8, metadata={"test": "yes"}, extra_body={"seed": 7})
    whole = client.responses.create(**ask)
    assert whole.id.startswith("resp_") and whole.object == "response"
    assert whole.status in ("completed", "incomplete") and whole.output_text
    assert whole.metadata == {"test": "yes"} and whole.instructions == "You tell stories."
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    if whole.status == "incomplete":
        assert whole.incomplete_details.reason == "max_output_tokens"
    events = list(client.responses.create(**ask, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1].response
    assert deltas == last.output_text == whole.output_text, (deltas, whole.output_text)
    assert events[0].response.id == last.id and events[0].response.status == "in_progress"
    assert last.usage.output_tokens == whole.usage.output_tokens
    with client.responses.stream(**ask) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
    assert snapshots[-1] == whole.output_text


def check_conversation(client, model):
    tools = [{"type": "function", "name": "weather", "description": "The weather of a town",
              "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
              "strict": False}]
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "How is it in Bath?"}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather",
         "arguments": '{"town": "Bath"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "fine"},
    ]
    try:
        answer = client.responses.create(model=model, input=items, tools=tools,
                                         max_output_tokens=8)
        assert answer.tools[0].name == "weather"
    except openai.BadRequestError as error:
        assert "template" in str(error), error  # the model's template takes no tools
    first = client.responses.create(model=model, input=PROMPT, max_output_tokens=8)
    again = client.responses.create(
        model=model, max_output_tokens=8,
        input=[{"role": "user", "content": PROMPT}, *first.output,
               {"role": "user", "content": "Go on."}])
    assert again.usage.input_tokens > first.usage.input_tokens


def check_errors(client, model):
    for error, changes in [
            (openai.NotFoundError, dict(model="gpt-7")),
            (openai.BadRequestError, dict(temperature=-1)),
            (openai.BadRequestError, dict(max_output_tokens=10**6)),
            (openai.BadRequestError, dict(store=True)),
            (openai.BadRequestError, dict(background=True)),
            (openai.BadRequestError, dict(conversation="conv_1")),
            (openai.BadRequestError, dict(previous_response_id="resp_1")),
            (openai.BadRequestError, dict(tools=[{"type": "web_search"}]))]:
        try:
            client.responses.create(**{**dict(model=model, input=PROMPT), **changes})
        except error as caught:
            assert caught.body["message"] and caught.body["param"] in changes, caught.body
        else:
            raise AssertionError(f"{changes} raised nothing")
    for call in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        try:
            call("resp_1")
        except openai.NotFoundError as caught:
            assert "not kept" in str(caught)
        else:
            raise AssertionError("a response that was not kept was found")


def check(url, model):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    check_whole_and_streamed(client, model)
    check_conversation(client, model)
    assert client.responses.input_tokens.count(model=model, input=PROMPT).input_tokens > 0
    check_errors(client, model)


if __name__ == "__main__":
    served.main(check)
