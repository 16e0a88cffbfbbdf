"""Many conversations at once with asyncio; one of them is given up half way."""

import asyncio
import sys

from edgewise import AsyncLLM, SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=24)


async def ask(llm: AsyncLLM, question: str) -> str:
    deltas = llm.generate_stream([{"role": "user", "content": question}], PARAMS)
    return "".join([delta.text async for delta in deltas])


async def main(model: str = "smollm2-135m-instruct") -> None:
    llm = await asyncio.to_thread(AsyncLLM, model)
    async with llm:
        questions = [f"What is {n} plus {n}?" for n in range(1, 6)]
        for question, answer in zip(
            questions, await asyncio.gather(*(ask(llm, q) for q in questions)), strict=True
        ):
            print(f"{question} {answer!r}")
        long = asyncio.create_task(
            llm.generate("Tell me everything.", PARAMS.with_changes(max_tokens=None), request_id="long")
        )
        await asyncio.sleep(0.2)
        await llm.abort("long")
        (output,) = await long
        print(f"given up after {len(output.token_ids)} tokens: {output.finish_reason}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
