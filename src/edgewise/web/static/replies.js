// One answer on its way: sends the request, gathers what comes into the message, measures. Knows nothing of how it looks.

import { ServerError, streamAnswer } from "./api.js";
import { pathTo, requestMessages } from "./chats.js";

const MAX_CALLS = 64; // in one answer
const MEASURABLE_S = 0.05; // what came in one burst has no rate

/** What is asked of the server for an answer to `message`. */
export function requestBody(chat, message, { model, systemPrompt, temperature, maxTokens, think }) {
  const body = {
    model: model ?? chat.model ?? "",
    messages: requestMessages(pathTo(chat, message), systemPrompt),
    stream: true,
    stream_options: { include_usage: true },
    chat_template_kwargs: { enable_thinking: think },
  };
  if (temperature !== null) body.temperature = temperature;
  if (maxTokens !== null) body.max_tokens = maxTokens;
  return body;
}

/**
 * Fills `message` until its answer ends; `onChange` after each piece. Never throws: what went wrong is `message.error`.
 * `message.state`: "writing", then "done", "stopped" or "failed".
 */
export class Reply {
  constructor(message, onChange) {
    this.message = message;
    this.onChange = onChange;
    this.controller = new AbortController();
    this.startedAt = performance.now();
    this.firstAt = null;
    this.thinkingSince = null;
    Object.assign(message, { text: "", state: "writing", reasoning: "", steps: [], calls: [], sources: [], stats: null, error: null });
  }

  stop() {
    this.controller.abort();
  }

  async run(body, options) {
    const { message } = this;
    try {
      for await (const event of streamAnswer(body, { ...options, signal: this.controller.signal })) this.take(event);
      message.state = "done";
      if (!message.text && !message.calls.length) message.error = emptyWords(message);
    } catch (error) {
      this.fail(error);
    }
    this.endThinking();
    this.measure();
    this.onChange();
  }

  fail(error) {
    const { message } = this;
    if (error.name === "AbortError") {
      message.state = "stopped";
      return;
    }
    message.state = "failed";
    message.needsKey = error instanceof ServerError && error.needsKey;
    message.error = error instanceof ServerError ? error.message : `This page could not read the answer: ${error.message}`;
  }

  take(event) {
    const { message } = this;
    if (event.edgewise) this.takeResearch(event.edgewise);
    if (event.usage) this.usage = event.usage;
    if (event.timings) this.timings = event.timings;
    if (event.model) message.model = event.model;
    const [choice] = event.choices ?? [];
    if (choice) this.takeDelta(choice.delta ?? {}, choice.finish_reason);
    this.onChange();
  }

  takeDelta(delta, reason) {
    const { message } = this;
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought || delta.content || delta.tool_calls?.length) this.firstAt ??= performance.now();
    if (thought) {
      this.thinkingSince ??= performance.now();
      message.reasoning += thought;
    }
    if (delta.content) {
      this.endThinking();
      message.text += delta.content;
    }
    for (const piece of delta.tool_calls ?? []) this.takeCall(piece);
    if (reason) message.finish = reason;
  }

  takeCall({ index = 0, function: called = {} }) {
    if (!Number.isInteger(index) || index < 0 || index >= MAX_CALLS) return;
    const call = (this.message.calls[index] ??= { name: "", arguments: "" });
    call.name += called.name ?? "";
    call.arguments += called.arguments ?? "";
  }

  takeResearch(event) {
    const { message } = this;
    this.endThinking();
    if (event.type === "sources") message.sources = event.sources;
    else message.steps.push(event);
    if (event.type !== "sources" && message.text && !message.text.endsWith("\n\n")) message.text += "\n\n";
  }

  endThinking() {
    if (this.thinkingSince === null) return;
    this.message.thoughtSeconds = (this.message.thoughtSeconds ?? 0) + (performance.now() - this.thinkingSince) / 1000;
    this.thinkingSince = null;
  }

  /** The server's own figures where it gives them; else this page's clock. */
  measure() {
    if (this.firstAt === null) return;
    const now = performance.now();
    const tokens = this.usage?.completion_tokens ?? null;
    const writing = (now - this.firstAt) / 1000;
    this.message.stats = {
      tokens,
      perSecond: this.timings?.predicted_per_second || (tokens > 1 && writing > MEASURABLE_S ? (tokens - 1) / writing : null),
      firstSeconds: (this.firstAt - this.startedAt) / 1000,
      totalSeconds: (now - this.startedAt) / 1000,
      promptTokens: this.usage?.prompt_tokens ?? null,
      cachedTokens: this.usage?.prompt_tokens_details?.cached_tokens ?? null,
    };
  }
}

function emptyWords({ finish, reasoning }) {
  if (finish === "length") return reasoning ? "The model used all the tokens it was allowed for thinking." : "The limit of tokens left no room for an answer.";
  return "The model ended its answer without writing anything.";
}
