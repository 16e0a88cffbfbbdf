// Talking to the server: the list of models, streamed answers, and errors in words. Addresses are relative, so that a proxy may put the page
// below a path.

export class ServerError extends Error {
  constructor(message, { status = 0, code = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }

  get needsKey() {
    return this.status === 401;
  }
}

function headers(key, more = {}) {
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached. It may have stopped, or the network is down.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/** The models on offer: [{id, window, loaded, up, thinks}]. Raises ServerError. */
export async function listModels(key) {
  const { data = [] } = await (await request("v1/models", { headers: headers(key) })).json();
  return data.map((entry) => ({
    id: entry.id,
    window: entry.max_model_len ?? entry.context_length ?? null,
    loaded: entry.edgewise?.loaded ?? true,
    up: entry.edgewise ? entry.edgewise.upstreams.length > 0 : true,
    alias: entry.root && entry.root !== entry.id ? entry.root : null,
    chats: entry.capabilities?.chat ?? true,
    thinks: entry.capabilities?.reasoning ?? null, // null: nobody said
  }));
}

/** The events of a streamed answer, as objects. Raises ServerError; an answer that ends before its end mark is one. */
export async function* streamAnswer(body, { key, web, signal }) {
  const response = await request(web ? "v1/web/chat/completions" : "v1/chat/completions", {
    method: "POST",
    headers: headers(key, { "Content-Type": "application/json" }),
    body: JSON.stringify(body),
    signal,
  });
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw errorOf(asError(event.error), 0);
    yield event;
  }
  throw new ServerError("The answer broke off: the connection was lost.");
}

/** The `data` of each server-sent event. */
async function* eventData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(asBrokenOff);
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have ended already
  }
}

function asBrokenOff(error) {
  if (error.name === "AbortError") throw error;
  throw new ServerError("The answer broke off: the connection was lost.");
}

async function refusal(response) {
  const text = await response.text().catch(() => "");
  const pause = Number(response.headers.get("retry-after")) || null;
  let error = {};
  try {
    error = JSON.parse(text).error ?? {};
  } catch {
    // a proxy's page, or nothing
  }
  return errorOf(asError(error), response.status, pause);
}

/** Some servers write an error as its message alone. */
function asError(error) {
  return typeof error === "string" ? { message: error } : error;
}

function errorOf({ message = "", code = null }, status, pause = null) {
  return new ServerError(inWords(message, code, status, pause), { status, code });
}

function inWords(message, code, status, pause) {
  const again = pause ? ` Try again in ${pause} ${pause === 1 ? "second" : "seconds"}.` : " Try again in a moment.";
  if (status === 401) return "This server asks for a key.";
  if (code === "context_length_exceeded") return `This conversation has become too long for the model. ${message} Start a new one, or edit an earlier message.`;
  if (status === 413) return "That message is larger than this server takes.";
  if (status === 429) return `${message || "Too many requests at once."}${again}`;
  if (status === 503 || status === 529) return `The server is busy.${again}`;
  if (status === 502 || status === 504) return `The model server behind this address does not answer. ${message}`.trim();
  if (status === 404) return message || "This server does not know that model.";
  return message || (status ? `The server answered with an error (${status}).` : "The server broke the answer off.");
}
