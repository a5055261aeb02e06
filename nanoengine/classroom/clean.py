"""Clean the text before training: drop what a classroom must not see, tidy hasty typing.

Dropping works on whole conversations, so that no half-answered question is left. Tidying makes
chat lines read like written English ("im good, u?" -> "I'm good, you?"): a small model learns
sooner from one spelling than from ten, and what it writes is what it read.
"""

import codecs
import html
import re

# rot13, so that this file can be shown in any classroom.
_COARSE_ROT13 = (
    "shpx fuvg ovgpu nff nffubyr onfgneq qnza penc cvff qvpx pbpx phag chffl juber fyhg snttbg "
    "snt avttre avttn ergneq ergneqrq wrexbss zbgureshpxre ohyyfuvg jgs fghcvq-nff qbhpur "
    "sex frkl cbea anxrq encr encrq enpvfg anmv uvgyre fhvpvqr zheqre pbpnvar urebva jrrq "
    "znevwhnan qehax ubeal obbof gvgf cravf intvan betnfz xvyy-lbhefrys"
)
COARSE_WORDS = frozenset(
    word.replace("-", " ") for word in codecs.decode(_COARSE_ROT13, "rot13").split()
) | {"sex", "sexy"}
# Opinions on these would be put into the mouth of a classroom's model.
DIVISIVE_WORDS = frozenset(
    ("trump", "clinton", "obama", "abortion", "abortions", "republican", "republicans",
     "democrat", "democrats", "immigrants", "gay", "lesbian", "transgender", "terrorist",
     "terrorists", "gun control", "racist")
)  # fmt: skip
# The chats were collected in a contest for the most words; talk about that is noise.
CONTEST_WORDS = frozenset(
    ("ipad", "leaderboard", "chatbot", "word count", "this experiment", "research study",
     "irb", "gift card", "pcc lab", "this chat", "the chat", "the prompt", "anyone there",
     "anyone here", "anybody there", "you there", "still there")
)  # fmt: skip


def _any_of(words: frozenset[str]) -> re.Pattern[str]:
    alternatives = "|".join(re.escape(word) for word in sorted(words))
    return re.compile(rf"\b(?:{alternatives})\b", re.IGNORECASE)


_UNWANTED = {
    "coarse": _any_of(COARSE_WORDS),
    "divisive": _any_of(DIVISIVE_WORDS),
    "contest": _any_of(CONTEST_WORDS),
    "email": re.compile(r"\S+@\S+\.\w+|\b\w+ at (?:gmail|yahoo|hotmail)\b|@\w{3,}", re.IGNORECASE),
    # seven or more digits, with the separators that people put between them
    "phone": re.compile(r"\d(?:[\s().+-]{0,2}\d){6,}"),
    "link": re.compile(r"https?://|www\.|\b[\w-]+\.(?:com|org|net|edu)\b", re.IGNORECASE),
}


def why_unwanted(text: str) -> str | None:
    """Name of the first rule that the text breaks, or None when it may stay.

    >>> why_unwanted("Write to ann@example.org"), why_unwanted("Call 555-123-4567")
    ('email', 'phone')
    >>> why_unwanted("I was born in 1998.") is None
    True
    """
    for rule, pattern in _UNWANTED.items():
        if pattern.search(text):
            return rule
    return None


_WORDS = {
    "i": "I", "im": "I'm", "i'm": "I'm", "ive": "I've", "i've": "I've", "i'd": "I'd",
    "i'll": "I'll", "dont": "don't", "cant": "can't", "didnt": "didn't", "doesnt": "doesn't",
    "isnt": "isn't", "wasnt": "wasn't", "wont": "won't", "wouldnt": "wouldn't",
    "couldnt": "couldn't", "shouldnt": "shouldn't", "havent": "haven't", "hasnt": "hasn't",
    "arent": "aren't", "werent": "weren't", "thats": "that's", "whats": "what's",
    "hows": "how's", "wheres": "where's", "theres": "there's", "hes": "he's", "shes": "she's",
    "theyre": "they're", "theyve": "they've", "youre": "you're", "youve": "you've",
    "youll": "you'll", "u": "you", "ur": "your", "r": "are", "ya": "yeah", "yea": "yeah",
    "idk": "I don't know", "ik": "I know", "cuz": "because", "bc": "because", "thx": "thanks",
    "pls": "please", "plz": "please", "btw": "by the way", "tbh": "to be honest",
    "hbu": "how about you", "wbu": "what about you", "omg": "oh my gosh", "tho": "though",
    "ppl": "people", "rn": "right now", "alot": "a lot", "gosh": "gosh", "wanna": "want to",
    "gonna": "going to", "kinda": "kind of", "lol": "", "lmao": "", "rofl": "", "haha": "haha",
}  # fmt: skip
_HAHA = re.compile(r"\b(?:b?a?(?:ha){2,}h?|hehe+)\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?")
_ASCII = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": " - ", "…": "...", "\u00a0": " "}
)
_AUXILIARY = "do|does|did|are|is|was|were|can|could|would|will|have|has|should|am"
_SUBJECT = "you|they|it|he|she|we|i|there|that|this|your|the|any|those|these"
_QUESTION = re.compile(
    r"^(?:(?:so|and|but|oh|well|haha|yeah|ok|okay|wow|nice|cool|hey|hi|hello)[,.!]? )*"
    rf"(?:(?:what|who|where|when|why|how|which)(?:'s|'re)? (?!a |cool|fun|nice|funny|great)"
    rf"|(?:{_AUXILIARY}) (?:{_SUBJECT})\b|(?:what|how) about\b|why\b$|how so$)",
    re.IGNORECASE,
)


def tidy(line: str) -> str:
    """One chat message as a written sentence: ASCII, capitals, contractions, an end mark.

    >>> tidy("im good lol, how are u")
    "I'm good, how are you."
    >>> tidy("what do you like to do??")
    'What do you like to do?'

    Returns "" when nothing readable is left.
    """
    text = html.unescape(line).translate(_ASCII)
    text = text.encode("ascii", "ignore").decode()
    text = re.sub(r"([:;]-?[()DPpO/|3]|<3|\^_?\^|xD\b)", " ", text)  # smileys
    text = _HAHA.sub("haha", text)
    text = _WORD.sub(lambda m: _WORDS.get(m[0].lower(), m[0]), text)
    text = re.sub(r"([A-Za-z])\1{2,}", r"\1\1", text)
    text = re.sub(r"([!?,])(?:\s*[!?,])+", r"\1", text)
    text = re.sub(r"\.(?:\s*\.)+", "...", text)
    text = re.sub(r"\s+([,.!?])", r"\1", re.sub(r"\s+", " ", text)).strip(" ,-*")
    if not re.search(r"[A-Za-z]", text):
        return ""
    text = re.sub(r"(^|[.!?] )([a-z])", lambda m: m[1] + m[2].upper(), text)
    if text[-1] not in ".!?":
        last = re.split(r"(?<=[.!?]) ", text)[-1]
        text += "?" if _QUESTION.match(last) else "."
    return text
