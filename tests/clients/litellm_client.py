"""What LiteLLM makes of our answers, as its provider hosted_vllm."""

import litellm

import served

MESSAGES = [{"role": "user", "content": "It was a fine morning, and"}]


def check(url, model):
    ask = dict(model=f"hosted_vllm/{model}", api_base=url + "/v1", messages=MESSAGES,
               max_tokens=16, seed=3)
    whole = litellm.completion(**ask)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens > 0
    streamed = "".join(event.choices[0].delta.content or ""
                       for event in litellm.completion(**ask, stream=True))
    assert streamed == text, (streamed, text)
    try:
        litellm.completion(**{**ask, "max_tokens": 10**6})
    except litellm.BadRequestError as error:
        assert "max_tokens" in str(error)
    else:
        raise AssertionError("max_tokens=1000000 raised nothing")


if __name__ == "__main__":
    served.main(check)
