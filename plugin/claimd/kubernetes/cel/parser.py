"""The parser: tokens to nodes by recursive descent. It expands macros on the way.

The tree has no types yet. The checker writes them.
"""

from __future__ import annotations

from collections.abc import Callable

from . import digits as _digits
from . import macros
from .errors import CompileError
from .syntax import Call, Ident, ListNode, Literal, MapNode, Node, Select
from .tokens import Token, tokenize
from .values import UInt

_RELATIONS = frozenset(("<", "<=", ">=", ">", "==", "!=", "in"))
_FUNCTIONS = {
    text: f"_{text}_"
    for text in ("<", "<=", ">=", ">", "==", "!=", "+", "-", "*", "/", "%", "&&", "||")
}
_FUNCTIONS["in"] = "@in"
_RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import"),
        *("in", "let", "loop", "package", "namespace", "null", "return", "true", "var", "void"),
        "while",
    )
)
_CONSTANTS = {"true": True, "false": False, "null": None}
# Kubernetes refuses longer chains and deeper nesting.
_LONGEST_CHAIN = 250
_LARGEST_INT, _LARGEST_UINT = 2**63 - 1, 2**64 - 1


def parse(expression: str) -> Node:
    """Returns the root of the expression's tree. Raises CompileError if the syntax is wrong."""
    parser = _Parser(expression)
    try:
        node = parser.expression()
        parser.expect("end")
    except CompileError as error:
        raise CompileError(error.reason, expression, error.position) from None
    except RecursionError:
        raise CompileError("nested too deeply", expression) from None

    return node


class _Parser:
    """One pass over the tokens, with a method for each level of precedence, the lowest first."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._at = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._take() if self._next.kind == kind else None

    def expect(self, kind: str) -> Token:
        """Takes the next token. Raises CompileError if it is of another kind."""
        token = self._next
        if token.kind != kind:
            wanted = {"end": "the end", "name": "a name"}.get(kind, repr(kind))
            raise CompileError(f"expected {wanted}, found {_describe(token)}", "", token.position)
        return self._take()

    # Operators

    def expression(self) -> Node:
        condition = self._or()
        question = self._accept("?")
        if not question:
            return condition
        then = self._or()
        self.expect(":")
        return Call(question.position, "_?_:_", [condition, then, self.expression()])

    def _or(self) -> Node:
        return self._logic("||", self._and)

    def _and(self) -> Node:
        return self._logic("&&", self._relation)

    def _logic(self, operator: str, term: Callable[[], Node]) -> Node:
        terms, positions = [term()], []
        while self._next.kind == operator:
            # A long row of terms becomes a balanced tree below. Otherwise its depth would be the
            # number of its terms.
            positions.append(self._take().position)
            terms.append(term())
        return _balance(_FUNCTIONS[operator], terms, positions)

    def _relation(self) -> Node:
        return self._chain(_RELATIONS, self._sum)

    def _sum(self) -> Node:
        return self._chain(frozenset("+-"), self._product)

    def _product(self) -> Node:
        return self._chain(frozenset("*/%"), self._unary)

    def _chain(self, operators: frozenset[str], term: Callable[[], Node]) -> Node:
        node = term()
        length = 1
        while self._next.kind in operators:
            token = self._take()
            node = Call(token.position, _FUNCTIONS[token.kind], [node, term()])
            length += 1
            if length > _LONGEST_CHAIN:
                raise CompileError(
                    f"more than {_LONGEST_CHAIN} operators in a row", "", token.position
                )

        return node

    def _unary(self) -> Node:
        first = self._next
        # A minus before a number belongs to the number, since the least int has no positive form.
        if first.kind == "-" and self._tokens[self._at + 1].kind in ("int", "float"):
            return self._member()
        if first.kind not in ("!", "-"):
            return self._member()

        # Two in a row cancel each other.
        count = 0
        while self._accept(first.kind):
            count += 1

        operand = self._member()
        if count % 2 == 0:
            return operand
        return Call(first.position, "!_" if first.kind == "!" else "-_", [operand])

    # Members

    def _member(self) -> Node:
        node = self._primary()
        length = 1
        while self._next.kind in (".", "["):
            node = self._select(node) if self._next.kind == "." else self._index(node)
            length += 1
            if length > _LONGEST_CHAIN:
                raise CompileError(
                    f"more than {_LONGEST_CHAIN} selections in a row", "", node.position
                )

        return node

    def _select(self, operand: Node) -> Node:
        dot = self.expect(".")
        if self._accept("?"):
            name = self._field()
            field = Literal(name.position, name.text.strip("`"))
            return Call(dot.position, "_?._", [operand, field])

        name = self._field()
        if name.kind == "quoted":
            return Select(dot.position, operand, name.text.strip("`"))

        opened = self._accept("(")
        if not opened:
            return Select(dot.position, operand, name.text)
        return _call(opened, name.text, operand, self._arguments())

    def _field(self) -> Token:
        token = self._accept("quoted") or self.expect("name")
        if token.text in _CONSTANTS:
            raise CompileError(f"expected a name, found {token.text!r}", "", token.position)
        return token

    def _index(self, operand: Node) -> Node:
        opened = self.expect("[")
        function = "_[?_]" if self._accept("?") else "_[_]"
        index = self.expression()
        self.expect("]")
        return Call(opened.position, function, [operand, index])

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        if self._accept(")"):
            return arguments

        while True:
            arguments.append(self.expression())
            if not self._accept(","):
                self.expect(")")
                return arguments

    # Primaries

    def _primary(self) -> Node:
        token = self._take()
        match token.kind:
            case "(":
                node = self.expression()
                self.expect(")")
                return node
            case "[":
                return self._list(token)
            case "{":
                return self._map(token)
            case "string" | "bytes":
                return Literal(token.position, token.value)
            case "int" | "uint" | "float" | "-":
                return self._number(token)
            case "name" | ".":
                return self._identifier(token)

        raise CompileError(f"expected a value, found {_describe(token)}", "", token.position)

    def _number(self, token: Token) -> Node:
        negative = token.kind == "-"
        digits = self._take() if negative else token
        if negative and digits.kind not in ("int", "float"):
            raise CompileError(f"expected a number, found {_describe(digits)}", "", digits.position)

        text = digits.text
        if digits.kind == "float":
            value = float(text)
            # Python reads a number beyond the range as infinity. Go refuses it.
            if value == float("inf"):
                raise CompileError(f"{text} is too large for a double", "", token.position)
            return Literal(token.position, -value if negative else value)

        written = text.rstrip("uU")
        amount = int(written, 16) if written.startswith("0x") else _digits.parse_int(written)
        if digits.kind == "uint":
            if amount > _LARGEST_UINT:
                raise CompileError(f"{text} is too large for a uint", "", token.position)
            return Literal(token.position, UInt(amount))
        if amount > _LARGEST_INT + negative:
            raise CompileError(f"{text} is too large for an int", "", token.position)
        return Literal(token.position, -amount if negative else amount)

    def _identifier(self, token: Token) -> Node:
        from_root = token.kind == "."
        name = self.expect("name") if from_root else token
        if not from_root and name.text in _CONSTANTS:
            return Literal(token.position, _CONSTANTS[name.text])
        # CEL can construct messages, but there is no message type here.
        if self._is_message():
            raise CompileError("messages cannot be made in a device expression", "", token.position)
        if name.text in _RESERVED:
            raise CompileError(f"{name.text} is a reserved word", "", token.position)

        text = f".{name.text}" if from_root else name.text
        opened = self._accept("(")
        if not opened:
            return Ident(token.position, text)
        return _call(opened, text, None, self._arguments())

    def _is_message(self) -> bool:
        """Returns True if a message follows: names with dots between them and a brace, pkg.Type{…}."""
        at = self._at
        while self._tokens[at].kind == "." and self._tokens[at + 1].kind == "name":
            at += 2
        return self._tokens[at].kind == "{"

    def _list(self, opened: Token) -> Node:
        elements: list[Node] = []
        optional: set[int] = set()
        while self._next.kind != "]":
            if self._next.kind == "," and not self._trailing(bool(elements), "]"):
                break
            if self._next.kind == "]":
                break
            if self._accept("?"):
                optional.add(len(elements))
            elements.append(self.expression())
            if self._next.kind != ",":
                break

        self.expect("]")
        return ListNode(opened.position, elements, frozenset(optional))

    def _map(self, opened: Token) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while self._next.kind != "}":
            if self._next.kind == "," and not self._trailing(bool(entries), "}"):
                break
            if self._next.kind == "}":
                break
            optional = self._accept("?") is not None
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), optional))
            if self._next.kind != ",":
                break

        self.expect("}")
        return MapNode(opened.position, entries)

    def _trailing(self, some: bool, closing: str) -> bool:
        """Takes a comma, and returns False if it may not stand here.

        The grammar allows one between entries, one after the last entry, and one alone.
        """
        self._take()
        if self._next.kind == closing:
            return True
        return some


def _describe(token: Token) -> str:
    return "the end" if token.kind == "end" else repr(token.text)


def _call(opened: Token, name: str, target: Node | None, arguments: list[Node]) -> Node:
    expansion = macros.expand(opened.position, name, target, arguments)
    return expansion or Call(opened.position, name, arguments, target)


def _balance(function: str, terms: list[Node], positions: list[int]) -> Node:
    """Builds a flat tree out of a long row of terms."""
    if len(terms) == 1:
        return terms[0]
    middle = (len(terms) - 1) // 2
    left = _balance(function, terms[: middle + 1], positions[:middle])
    right = _balance(function, terms[middle + 1 :], positions[middle + 1 :])
    return Call(positions[middle], function, [left, right])
