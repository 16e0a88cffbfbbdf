// How languages look, as ordered rules [kind, pattern]: the first that matches wins. Patterns have no capturing groups and take time
// linear in the text.

const words = (text) => `\\b(?:${text.trim().split(/\s+/).join("|")})\\b`;
const END = "$(?![\\s\\S])"; // of the whole text: what is open while an answer is being written

const DOUBLE = '"(?:[^"\\\\\\n]|\\\\.)*"?';
const SINGLE = "'(?:[^'\\\\\\n]|\\\\.)*'?";
const BACKTICK = `\`(?:[^\`\\\\]|\\\\[\\s\\S])*(?:\`|${END})`;
const BLOCK_COMMENT = `/\\*[\\s\\S]*?(?:\\*/|${END})`;
const LINE_COMMENT = "//.*";
const HASH_COMMENT = "#.*";
const NUMBER = "\\b(?:0[xX][\\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|\\d[\\d_]*(?:\\.\\d[\\d_]*)?(?:[eE][+-]?\\d+)?)[a-zA-Z\\d]*\\b";
const CALL = "(?<![\\w$])[A-Za-z_$][\\w$]*(?=\\()";
const TYPE = "\\b[A-Z]\\w*\\b";

function curly(keywords, { strings = [DOUBLE, SINGLE], extra = [], literals = "true false null" } = {}) {
  return {
    rules: [
      ["comment", `${BLOCK_COMMENT}|${LINE_COMMENT}`],
      ...extra,
      ["string", strings.join("|")],
      ["number", NUMBER],
      ["literal", words(literals)],
      ["keyword", words(keywords)],
      ["type", TYPE],
      ["call", CALL],
    ],
  };
}

const JS = `as async await break case catch class const continue debugger default delete do else export extends finally for from function get if import in
  instanceof let new of return set static super switch this throw try typeof var void while with yield`;
const TS = `${JS} abstract any boolean declare enum implements interface is keyof namespace never number private protected public readonly satisfies string
  symbol type unknown`;
const C = `alignas alignof auto bool break case char const constexpr continue default do double else enum extern float for goto if inline int long register
  restrict return short signed sizeof static struct switch typedef typeof union unsigned void volatile while size_t uint8_t uint16_t uint32_t uint64_t
  int8_t int16_t int32_t int64_t`;
const CPP = `${C} and catch class co_await co_return co_yield concept consteval constinit const_cast decltype delete dynamic_cast explicit export final
  friend mutable namespace new noexcept not operator or override private protected public reinterpret_cast requires static_assert static_cast template this
  throw try typename using virtual`;
const PREPROCESSOR = ["meta", "^[ \\t]*#[ \\t]*\\w+.*"];
const SHELL_WORDS = `alias break case cd continue do done echo elif else esac eval exec exit export fi for function if in local printf read readonly return
  set shift source test then trap unset until while`;
const SQL_WORDS = `add all alter and as asc begin between by case cast check column commit constraint create cross default delete desc distinct drop else end
  except exists explain foreign from full group having if in index inner insert intersect into is join key left like limit not null offset on or order outer
  over partition primary references returning right rollback select set table then transaction union unique update using values view when where with
  integer int bigint text varchar boolean numeric timestamp date real serial`;

export const LANGUAGES = {
  javascript: curly(JS, { strings: [DOUBLE, SINGLE, BACKTICK], literals: "true false null undefined NaN Infinity" }),
  typescript: curly(TS, { strings: [DOUBLE, SINGLE, BACKTICK], literals: "true false null undefined NaN Infinity" }),
  c: curly(C, { extra: [PREPROCESSOR], literals: "true false NULL nullptr" }),
  cpp: curly(CPP, { extra: [PREPROCESSOR], literals: "true false NULL nullptr" }),
  csharp: curly(`abstract as async await base bool break byte case catch char class const continue decimal default do double else enum event explicit extern
    finally fixed float for foreach get if implicit in init int interface internal is lock long namespace new object operator out override params private
    protected public readonly record ref return sealed set short sizeof static string struct switch this throw try typeof uint ulong unsafe using var
    virtual void where while yield`),
  java: curly(`abstract assert boolean break byte case catch char class const continue default do double else enum extends final finally float for if
    implements import instanceof int interface long native new package private protected public record return sealed short static super switch
    synchronized this throw throws transient try var void volatile while yield`, { extra: [["meta", "@\\w+"]] }),
  kotlin: curly(`abstract as break by catch class companion const constructor continue data do else enum external final finally for fun if import in init
    inline interface internal is lateinit object open operator out override package private protected public return sealed super suspend this throw try
    typealias val var vararg when where while`, { extra: [["meta", "@\\w+"]] }),
  swift: curly(`actor as associatedtype async await break case catch class continue default defer deinit do else enum extension fileprivate for func guard
    if import in init inout internal is let mutating nil open override private protocol public repeat return self static struct subscript super switch
    throw throws try typealias var where while`, { literals: "true false nil" }),
  go: curly(`break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct
    switch type var any bool byte error float32 float64 int int8 int16 int32 int64 rune string uint uint8 uint16 uint32 uint64`,
    { strings: [DOUBLE, SINGLE, BACKTICK], literals: "true false nil iota" }),
  rust: curly(`as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return self static
    struct super trait type unsafe use where while bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize`,
    { strings: [DOUBLE, "'(?:[^'\\\\\\n]|\\\\.[^'\\n]*)'"], literals: "true false None Some Ok Err", extra: [["meta", "#!?\\[[^\\]\\n]*\\]|\\b\\w+!(?=[(\\[{])"]] }),
  php: curly(`abstract and array as break case catch class const continue default do echo else elseif extends final finally fn for foreach function global if
    implements include instanceof interface match namespace new or private protected public readonly require return static switch throw trait try use var
    while yield`, { extra: [["meta", "<\\?php|\\?>|\\$\\w+"]] }),
  python: {
    rules: [
      ["comment", HASH_COMMENT],
      ["string", `[rbfuRBFU]{0,2}(?:"""[\\s\\S]*?(?:"""|${END})|'''[\\s\\S]*?(?:'''|${END})|${DOUBLE}|${SINGLE})`],
      ["meta", "^[ \\t]*@[\\w.]+"],
      ["number", NUMBER],
      ["literal", words("True False None self cls")],
      ["keyword", words(`and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match
        nonlocal not or pass raise return try while with yield`)],
      ["type", TYPE],
      ["call", CALL],
    ],
  },
  ruby: {
    rules: [
      ["comment", HASH_COMMENT],
      ["string", `${DOUBLE}|${SINGLE}`],
      ["meta", ":\\w+|@@?\\w+"],
      ["number", NUMBER],
      ["literal", words("true false nil self")],
      ["keyword", words(`alias and begin break case class def do else elsif end ensure for if in module next not or redo rescue retry return super then undef
        unless until when while yield require attr_accessor attr_reader puts`)],
      ["type", TYPE],
    ],
  },
  bash: {
    rules: [
      ["comment", "(?<![^\\s])#.*"],
      ["string", `"(?:[^"\\\\]|\\\\[\\s\\S])*"?|'[^']*'?`],
      ["meta", "\\$\\{[^}\\n]*\\}?|\\$[\\w@#?*!-]+"],
      ["type", "(?<=\\s)--?[A-Za-z][\\w-]*"],
      ["number", "\\b\\d+\\b"],
      ["keyword", words(SHELL_WORDS)],
      ["call", "^[ \\t]*(?:\\$ )?(?:sudo )?[a-z][\\w.-]*|(?<=[|&;] )[a-z][\\w.-]*"],
    ],
  },
  json: { rules: [["type", '"(?:[^"\\\\\\n]|\\\\.)*"(?=\\s*:)'], ["string", DOUBLE], ["number", "-?\\b\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?\\b"], ["literal", words("true false null")], ["comment", LINE_COMMENT]] },
  yaml: {
    rules: [
      ["comment", "(?<![^\\s])#.*"],
      ["type", "^[ \\t]*(?:- )?[\\w.\\/-]+(?=:(?:\\s|$))"],
      ["string", `${DOUBLE}|${SINGLE}`],
      ["meta", "[&*][\\w-]+|^---|^%.*"],
      ["number", NUMBER],
      ["literal", words("true false null yes no on off")],
    ],
  },
  toml: {
    rules: [
      ["comment", "[#;].*"],
      ["keyword", "^[ \\t]*\\[{1,2}[^\\]\\n]*\\]{1,2}"],
      ["type", "^[ \\t]*[\\w.\"'-]+(?=[ \\t]*=)"],
      ["string", `"""[\\s\\S]*?(?:"""|${END})|${DOUBLE}|${SINGLE}`],
      ["number", NUMBER],
      ["literal", words("true false")],
    ],
  },
  html: {
    rules: [
      ["comment", `<!--[\\s\\S]*?(?:-->|${END})`],
      ["meta", "<![^>\\n]*>|&[\\w#]+;"],
      ["keyword", "<\\/?[A-Za-z][\\w:.-]*|\\/?>"],
      ["type", "(?<![\\w:@.-])[\\w:@.-]+(?==)"],
      ["string", "\"[^\"\\n]*\"|'[^'\\n]*'"],
    ],
  },
  css: {
    rules: [
      ["comment", BLOCK_COMMENT],
      ["string", `${DOUBLE}|${SINGLE}`],
      ["meta", "@[\\w-]+|![a-z]+"],
      ["type", "--[\\w-]+|(?<![\\w-])[\\w-]+(?=\\s*:[^:{}\\n]*[;}\\n])"],
      ["number", "#[\\da-fA-F]{3,8}\\b|-?\\b\\d+(?:\\.\\d+)?(?:%|[a-z]+)?"],
      ["call", "(?<![\\w-])[\\w-]+(?=\\()"],
      ["keyword", "[.#&][\\w-]+|::?[\\w-]+"],
    ],
  },
  sql: {
    flags: "i",
    rules: [
      ["comment", `--.*|${BLOCK_COMMENT}`],
      ["string", "'(?:[^']|'')*'?"],
      ["number", "\\b\\d+(?:\\.\\d+)?\\b"],
      ["literal", words("true false null")],
      ["keyword", words(SQL_WORDS)],
      ["call", CALL],
    ],
  },
  diff: { rules: [["meta", "^(?:@@.*|diff .*|index .*|--- .*|\\+\\+\\+ .*)"], ["added", "^\\+.*"], ["removed", "^-.*"]] },
  dockerfile: {
    rules: [
      ["comment", "^[ \\t]*#.*"],
      ["keyword", "^[ \\t]*(?:FROM|RUN|CMD|LABEL|EXPOSE|ENV|ADD|COPY|ENTRYPOINT|VOLUME|USER|WORKDIR|ARG|ONBUILD|STOPSIGNAL|HEALTHCHECK|SHELL)\\b|\\bAS\\b"],
      ["string", `${DOUBLE}|${SINGLE}`],
      ["meta", "\\$\\{?\\w+\\}?"],
      ["type", "(?<=\\s)--?[a-z][\\w-]*"],
    ],
  },
  makefile: {
    rules: [
      ["comment", HASH_COMMENT],
      ["call", "^[\\w./%-]+(?=\\s*:)"],
      ["type", "^[A-Za-z_]\\w*(?=\\s*[:?+]?=)"],
      ["meta", "\\$[({][^)}\\n]*[)}]|\\$."],
      ["string", `${DOUBLE}|${SINGLE}`],
    ],
  },
};

/** Other names of languages. */
export const NAMES = {
  js: "javascript", jsx: "javascript", mjs: "javascript", cjs: "javascript", node: "javascript",
  ts: "typescript", tsx: "typescript",
  py: "python", python3: "python", py3: "python",
  sh: "bash", shell: "bash", zsh: "bash", console: "bash", terminal: "bash", fish: "bash",
  h: "c", "c++": "cpp", cc: "cpp", cxx: "cpp", hpp: "cpp", cuda: "cpp", cu: "cpp",
  cs: "csharp", "c#": "csharp", golang: "go", rs: "rust", rb: "ruby", kt: "kotlin",
  yml: "yaml", json5: "json", jsonc: "json", jsonl: "json", ini: "toml", cfg: "toml", conf: "toml", systemd: "toml",
  xml: "html", svg: "html", vue: "html", xhtml: "html", scss: "css", less: "css",
  sqlite: "sql", postgres: "sql", postgresql: "sql", mysql: "sql", psql: "sql",
  patch: "diff", docker: "dockerfile", make: "makefile", mk: "makefile",
};
