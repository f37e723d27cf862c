"""A result with everything that must pass unchanged."""

RICH = {
    "content": [
        {"type": "text", "text": "é ☃ \u0000 end", "annotations": {"audience": ["user"]}},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x://1", "text": "inside", "_meta": {"k": 1}}},
        {"type": "hologram", "unheard": [1, 2.5, None, True]},
    ],
    "structuredContent": {"big": 9007199254740993, "neg": -1, "nested": {"list": [[], {}]}},
    "isError": True,
    "_meta": {"vendor/x": {"y": [1]}},
    "unknownField": {"kept": "yes"},
}
