// What characters mean inside a line, before anything is shown: runs of emphasis, brackets, where an address ends.

export const PUNCTUATION = /[\p{P}\p{S}]/u;
const MAX_PARENTHESES = 32; // inside each other, in one address: a text of openings alone must not be walked again for each

export function matches(opener, closer) {
  if (opener.character !== closer.character) return false;
  const both = opener.closes || closer.opens;
  return !(both && (opener.count + closer.count) % 3 === 0 && (opener.count % 3 || closer.count % 3));
}

export function delimiterRun(text, at, character, count) {
  const before = text[at - 1] ?? " ";
  const after = text[at + count] ?? " ";
  const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
  const [markBefore, markAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  const left = !spaceAfter && (!markAfter || spaceBefore || markBefore);
  const right = !spaceBefore && (!markBefore || spaceAfter || markAfter);
  const inWord = character === "_";
  return {
    character,
    count,
    left: count,
    opens: left && (!inWord || !right || markBefore),
    closes: right && (!inWord || !left || markAfter),
  };
}

export function runLength(text, at, character) {
  let end = at;
  while (text[end] === character) end += 1;
  return end - at;
}

/** Where each `[` is closed, in one walk. */
export function matchingBrackets(text) {
  const closing = new Map();
  const open = [];
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") open.push(at);
    else if (text[at] === "]" && open.length) closing.set(open.pop(), at);
  }
  return closing;
}

export function closingParenthesis(text, start) {
  let depth = 0;
  for (let at = start; at < Math.min(text.length, start + 4096); at += 1) {
    if (text[at] === "\n") return -1;
    if (text[at] === "\\") at += 1;
    else if (text[at] === "(" && ++depth > MAX_PARENTHESES) return -1;
    else if (text[at] === ")" && --depth === 0) return at;
  }
  return -1;
}

/** An address without the punctuation of the sentence it stands in. */
export function withoutTail(text) {
  let end = text.length;
  const opened = text.indexOf("(");
  for (;;) {
    const last = text[end - 1];
    if (/[.,:;!?*_~\]]/.test(last)) end -= 1;
    else if (last === ")" && (opened < 0 || opened >= end)) end -= 1;
    else return text.slice(0, end);
  }
}
