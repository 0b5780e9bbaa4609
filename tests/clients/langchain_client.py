"""What LangChain makes of our answers: the packages langchain-core and langchain-openai."""

import asyncio

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

import served

PROMPT = "It was a fine morning, and"


def check_chat(chat):
    messages = [SystemMessage("You tell stories."), HumanMessage(PROMPT)]
    whole = chat.invoke(messages)
    assert whole.content and whole.usage_metadata["output_tokens"] > 0
    assert whole.response_metadata["finish_reason"] in ("stop", "length")
    events = list(chat.stream(messages))
    assert "".join(event.content for event in events) == whole.content
    assert len(events) > 2
    total = events[0]
    for event in events[1:]:
        total += event
    for count in ("input_tokens", "output_tokens", "total_tokens"):
        assert total.usage_metadata[count] == whole.usage_metadata[count], (total, whole)
    # A conversation that goes on.
    assert chat.invoke([HumanMessage(PROMPT), AIMessage(whole.content), HumanMessage("Go on.")]).content


def check_batch(chat):
    prompts = [f"{PROMPT} {name}" for name in ("Emma", "Anne", "Jane", "Mary")]
    answers = chat.batch(prompts)
    assert [answer.content for answer in answers] == [chat.invoke(prompt).content for prompt in prompts]


async def check_async(chat):
    whole = await chat.ainvoke(PROMPT)
    streamed = "".join([event.content async for event in chat.astream(PROMPT)])
    assert streamed == whole.content


def check_chain(chat):
    chain = ChatPromptTemplate.from_messages([("human", "{start}, and")]) | chat | StrOutputParser()
    assert "".join(chain.stream({"start": "It was late"})) == chain.invoke({"start": "It was late"})


def check_logprobs(chat):
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke(PROMPT)
    content = answer.response_metadata["logprobs"]["content"]
    assert content and all(len(token["top_logprobs"]) == 2 for token in content)


def check_completions(url, model):
    llm = OpenAI(base_url=url + "/v1", api_key="none", model=model, max_tokens=16, temperature=0.8, seed=7)
    text = llm.invoke(PROMPT)
    assert text and "".join(llm.stream(PROMPT)) == text
    # LangChain sends several prompts as one request.
    assert llm.batch([PROMPT, PROMPT + " Emma"])[0] == text


def check(url, model):
    chat = ChatOpenAI(base_url=url + "/v1", api_key="none", model=model, max_tokens=24, temperature=0.8, seed=7,
                      stream_usage=True)
    check_chat(chat)
    check_batch(chat)
    asyncio.run(check_async(chat))
    check_chain(chat)
    check_logprobs(chat)
    check_completions(url, model)


if __name__ == "__main__":
    served.main(check)
