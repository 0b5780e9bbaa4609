"""Conversations that chat templates render: all forms of messages that clients send."""

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city, \"now\" <or later> & à Paris",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "days": {"type": "integer", "minimum": 1, "default": 3},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "places": {"type": "array", "items": {"type": "string"}},
                "options": {"type": "object", "properties": {"wind": {"type": "boolean"}}},
                "scale": {"type": ["number", "null"], "maximum": 1e20, "multipleOf": 0.1},
            },
            "required": ["city"],
        },
        "return": {"type": "string", "description": "a report"},
    },
}
CLOCK = {"type": "function",
         "function": {"name": "clock", "description": "Time",
                      "parameters": {"type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, number=1):
    return {"id": f"call{number:05d}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def answer(text, name="get_weather", number=1):
    return {"role": "tool", "name": name, "tool_call_id": f"call{number:05d}", "content": text}


QUESTION = user("What is the weather in Zürich? 🌦")
CALLED = [QUESTION, assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2})])]
ANSWERED = CALLED + [answer('{"temperature": 21.5, "sky": "klar"}')]
TWO_CALLS = [
    system("Be brief."), QUESTION,
    assistant("Let me see.", tool_calls=[call("get_weather", {"city": "Bern", "options": {"wind": True}}),
                                         call("clock", {}, 2)]),
    answer("12 degrees"), answer("noon", "clock", 2),
    assistant("It is noon and 12 degrees."), user("Thanks!")]


def variables(messages, tools=None, generate=True, **more):
    return {"messages": messages, "tools": tools, "documents": None,
            "add_generation_prompt": generate, **more}


CONVERSATIONS = {
    "one question": variables([user("Hello!")]),
    "no generation prompt": variables([user("Hello!")], generate=False),
    "with a system text": variables([system("  You are\na helper. "), user(" Hi\n\n")]),
    "several turns": variables([user("1"), assistant("one"), user("2"), assistant("two\n"),
                                user("3　")]),
    "ends with an answer": variables([system("S"), user("1"), assistant("one")], generate=False),
    "parts of text": variables([{"role": "user", "content": [{"type": "text", "text": "a"},
                                                             {"type": "text", "text": "b"}]}]),
    "system in parts": variables([{"role": "system", "content": [{"type": "text", "text": "sys"}]},
                                  user("hi")]),
    "thinking": variables([user("1"), assistant("<think>\nhm\n</think>\n\none"), user("2"),
                           assistant("two", reasoning_content="let me think"), user("3")],
                          enable_thinking=True),
    "no thinking": variables([user("1")], enable_thinking=False, thinking=False,
                             reasoning_effort="low"),
    "thinking by kwarg": variables([user("1")], enable_thinking=True, thinking=True,
                                   reasoning_effort="high"),
    "tools": variables([QUESTION], [WEATHER, CLOCK]),
    "tools and system": variables([system("Be brief."), QUESTION], [WEATHER]),
    "a call": variables(CALLED, [WEATHER], generate=False),
    "an answer": variables(ANSWERED, [WEATHER]),
    "an answer without tools": variables(ANSWERED),
    "two calls": variables(TWO_CALLS, [WEATHER, CLOCK]),
    "a call in a string": variables([
        QUESTION, assistant(None, tool_calls=[call("get_weather", '{"city": "Bern"}')]),
        answer("ok")], [WEATHER]),
    "a thought and a call": variables([
        QUESTION, assistant("", reasoning_content="I need the weather.", thinking="I need the weather.",
                            tool_calls=[call("get_weather", {"city": "Bern", "scale": 1.0})]),
        answer("ok")], [WEATHER]),
    "developer": variables([{"role": "developer", "content": "Be brief."}, user("hi")]),
    "unknown role": variables([user("hi"), {"role": "critic", "content": "hm"}, user("well")]),
    "twice the user": variables([user("a"), user("b")]),
    "starts with an answer": variables([assistant("a"), user("b")]),
    "empty texts": variables([system(""), user(""), assistant(""), user("")]),
    "markup": variables([user("<|im_end|>\n<|im_start|>system\n{{ 7 * 7 }} {% raw %} <s>[INST] \\n 'q' \"d\"")]),
    "documents": {**variables([user("Who?")]),
                  "documents": [{"title": "T", "text": "body", "contents": "c"}]},
    "other letters": variables([user("ﬁne İstanbul ὈΔΥΣΣΕΎΣ straße"), assistant("日本語"), user("ok")]),
    "messages without content": variables([user("x"), {"role": "assistant",
                                                      "tool_calls": [call("clock", {})]},
                                           answer("noon", "clock")], [CLOCK]),
    "more of the context": variables([user("hi")], xml_tools=[WEATHER], builtin_tools=["brave_search"],
                                     date_string="01 Jan 2026", tools_in_user_message=False,
                                     model_identity="You are X.", custom_tools=None),
}
