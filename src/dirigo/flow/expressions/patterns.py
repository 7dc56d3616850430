"""Regular expressions with one group left: Arrow extracts named groups only, and all that are named."""

from __future__ import annotations

from dirigo.flow.errors import FlowError

_WANTED = "(?P<wanted>"


def keep_group(pattern: str, group: int) -> str:
    """The same pattern in which only the group of that number captures; group 0 is the whole match.

    Nothing can refer to the groups that vanish: the engine has no back references.
    """
    pieces: list[str] = []
    found = 0
    position = 0
    while position < len(pattern):
        end = _end_of_piece(pattern, position)
        piece = pattern[position:end]
        if piece == "(" or (piece.startswith("(?") and piece.endswith(">")):
            found += 1
            piece = _WANTED if found == group else "(?:"
        pieces.append(piece)
        position = end
    if group > found:
        groups = "no group" if found == 0 else "only 1 group" if found == 1 else f"only {found} groups"
        raise FlowError(f"extract: the pattern {pattern!r} has {groups}, so there is no group {group}.")
    text = "".join(pieces)
    return f"{_WANTED}{text})" if group == 0 else text


def _end_of_piece(pattern: str, start: int) -> int:
    """Where the escape, character class, opening of a group or single character at `start` ends."""
    if pattern[start] == "\\":
        if pattern.startswith("\\Q", start):
            quote_end = pattern.find("\\E", start)
            return len(pattern) if quote_end < 0 else quote_end + 2
        return min(start + 2, len(pattern))
    if pattern[start] == "[":
        return _end_of_class(pattern, start)
    for opening in ("(?P<", "(?<"):
        if pattern.startswith(opening, start):
            name_end = pattern.find(">", start)
            return len(pattern) if name_end < 0 else name_end + 1
    return start + 1 if not pattern.startswith("(?", start) else start + 2


def _end_of_class(pattern: str, start: int) -> int:
    position = start + 1
    if pattern.startswith("^", position):
        position += 1
    if pattern.startswith("]", position):  # A bracket right at the start stands for itself.
        position += 1
    while position < len(pattern) and pattern[position] != "]":
        if pattern[position] == "\\":
            position += 2
        elif pattern.startswith("[:", position) and (named_end := pattern.find(":]", position)) > 0:
            position = named_end + 2
        else:
            position += 1
    return min(position + 1, len(pattern))
