#!/usr/bin/env python3
"""Writes data/sample_corpus.txt: the chronicle of Alderbrook, a village that exists only here.

Every word comes from the tables of corpus_words.py and the sentence patterns below, drawn by our own generator
(the sequences of Python's `random` are not guaranteed), so the script produces the same bytes on every machine. The text
has structure that a character-level model can learn in minutes: recurring names with their trades and
pronouns, agreement, matched quotation marks, answers that fit their questions, rhymes that rhyme, and
correct sums.

Patterns: [a|b] picks one of the two, {spot} draws from the table `spot`, {x.name} is a named person.
"""

import argparse
import hashlib
import itertools
import math
import re
import sys
from collections import Counter
from pathlib import Path

from corpus_words import (BEASTS, MONTHS, ONES, PEOPLE, RHYME_LOOKS, RHYMES, RIDDLES, TABLES, TENS, VIRTUES, WEEKDAYS,
                          WOMEN, a)

DEFAULT_OUTPUT = Path(__file__).resolve().parents[2] / "data" / "sample_corpus.txt"
DAYS_PER_MONTH = 28


class Dice:
    """SplitMix64: 64 bits of state, the same draws everywhere."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        return (z ^ (z >> 31)) % n

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def pick(self, items):
        return items[self.below(len(items))]

    def sample(self, items, count):
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]


def spell(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    return "a hundred" if n == 100 else "a hundred and " + spell(n - 100)


def count(n, one, many):
    return f"{spell(n)} {one if n == 1 else many}"


def pence(n):
    return count(n, "penny", "pence")


def cap(text):
    """Capitalises a sentence, also after an opening quote or a speaker's name."""
    return re.sub(r'^("|[A-Z]\w+: )?[a-z]', lambda m: m[0][:-1] + m[0][-1].upper(), text)


class Slots(dict):
    """The values of a pattern; missing ones are drawn from the table of that name."""

    def __init__(self, dice, values):
        super().__init__(values)
        self.dice = dice

    def __missing__(self, name):
        return self.dice.pick(TABLES[name])


class Chronicle:
    def __init__(self, seed):
        self.dice = Dice(seed)
        self.seen = set()

    def say(self, pattern, **values):
        """Fills a pattern; redraws a line that exists already: the model should learn patterns, not lines."""
        for _ in range(8):
            chosen = re.sub(r"\[([^]]*)\]", lambda m: self.dice.pick(m[1].split("|")), pattern)
            line = cap(chosen.format_map(Slots(self.dice, values)))
            if line not in self.seen:
                break
        self.seen.add(line)
        return line

    def lines(self, patterns, **values):
        return [self.say(pattern.strip(), **values) for pattern in patterns.strip().splitlines()]

    def two(self):
        return self.dice.sample(PEOPLE, 2)

    def other(self, *known):
        return self.dice.pick([p for p in PEOPLE if p not in known])

    # Stories, one sentence a line.

    def lost_tool(self):
        x, y = self.two()
        here, there, found = self.dice.sample(TABLES["spot"], 3)
        return self.lines("""
            [in the morning|at noon|before supper|after breakfast|late in the day] {x.full} could not find {x.his} {x.tool}.
            {x.he} looked {here} and {there}, but the {x.tool} was not there.
            [then the {y.animal} of {y.full} found it|then the {y.animal} of {y.full} saw it|at last {y.full} noticed it] {found}.
            "[thank you|you are a true friend|how can I thank you|I would never have looked there], {y.name}," said {x.name}.
            {x.he} was {feeling} and gave {y.him} {gift}.
            """, x=x, y=y, here=here, there=there, found=found,
            gift=count(self.dice.between(2, 6), x.good, x.goods))

    def visit(self):
        x, y = self.two()
        return self.lines("""
            [on that day|early in the morning|in the afternoon|when the work was done|toward evening] {x.full} walked to {y.place} to see {y.full}.
            {y.name} had [just|already|happily|slowly] {y.deed} and was {feeling}.
            they ate {meal} and talked about {topic}.
            ["What do you like best?" asked {x.name}. "I like {y.likes}," said {y.name}.|{y.name} said that {y.he} liked {y.likes} more than anything.|{x.name} gave {y.him} {gift}, and {y.he} was {feeling}.]
            {x.name} went home [under the stars|before dark|in the rain|along the river|with a light heart|through the fields].
            """, x=x, y=y, gift=count(self.dice.between(1, 4), x.good, x.goods))

    def found_thing(self):
        x, y = self.two()
        find = self.dice.pick(TABLES["find"])
        return self.lines("""
            {spot} {x.full} found {thing}.
            {x.he} [cleaned|turned|looked at|weighed|kept] it and [asked|wondered|tried to guess] whose {find} it was.
            "[It is not mine|I have never seen it|Ask somebody else|I lost one like it once]," said {y.full}, who [was on the way to|came from|was walking past] {z.place}.
            [so {x.name} hung the {find} on the gate, where its owner would see it.|in the end {x.he} gave the {find} to {y.name}, and both were {feeling}.|the {find} still hangs on a nail above the door of {x.name}.]
            """, x=x, y=y, z=self.other(y), find=find, thing=a(self.dice.pick(TABLES["look"]) + " " + find))

    def day_of_work(self):
        x = self.dice.pick(PEOPLE)
        before, after = self.dice.between(2, 12), self.dice.between(2, 12)
        kept = self.dice.between(1, min(before, after))
        return self.lines("""
            {x.full} {x.deed} [from five in the morning|from six in the morning|until the bell rang|without a rest|and sang].
            {x.he} had {before} at noon and {after} more by evening.
            that made {total} in one day.
            {x.he} kept {kept} and sold {sold} of them.
            at night {x.he} was {feeling} and dreamed of [{x.likes}|{topic}|{meal}].
            """, x=x, before=count(before, x.good, x.goods), after=spell(after),
            total=count(before + after, x.good, x.goods), kept=spell(kept), sold=spell(before + after - kept))

    def storm(self):
        x, y = self.two()
        z = self.other(x, y)
        return self.lines("""
            in the night a storm [broke|tore down|damaged|shook] [the roof|the fence|the gate|a window|the door|the old wall] of {x.full}.
            {y.full} came with {y.his} {y.tool}, and {z.full} came with {z.his} {z.tool}.
            {x.name}, {y.name} and {z.name} worked for {small} hours and mended it.
            "[Now the wind may blow|That will hold|It is better than before|Many hands make light work]," said [{x.name}|{y.name}|{z.name}].
            {x.name} cooked {meal} for three, and nobody was [cold|hungry|sad] that night.
            """, x=x, y=y, z=z)

    def fable(self):
        (one, how), (two, how_two) = self.dice.sample(BEASTS, 2)
        virtue, saying = self.dice.pick(VIRTUES)
        return self.lines("""
            {first} once wanted {want}.
            the {one} met {second} {spot}.
            "[Will you help me|Can you show me the way|Do you know where it is|Shall we look together]?" asked the {one}.
            "[Only if we share it|Gladly|I will, but tomorrow|Not for all the corn in the mill|Why not]," said the {two}.
            [for three days|all night|until the moon rose|for a week|the whole day] the {one} and the {two} [walked|waited|worked|searched|argued] together.
            this is a tale about {virtue}: {saying}.
            """, one=one, two=two, first=a(f"{how} {one}"), second=a(f"{how_two} {two}"),
            virtue=virtue, saying=saying)

    def ferry_ride(self):
        x, y = self.dice.sample([p for p in PEOPLE if p.trade != "ferryman"], 2)
        fare, heads = self.dice.between(1, 4), self.dice.between(3, 9)
        return self.lines("""
            {heads} travellers waited for the ferry, and {x.full} and {y.full} were among them.
            the fare was {fare} each, so Ben the ferryman got {total}.
            in the middle of the river {x.name} lost {x.his} [hat|shoe|scarf|glove|ring], and {y.name} caught it.
            on the other side {x.name} [laughed|sang|danced|bowed] and bought {y.him} {meal}.
            """, x=x, y=y, heads=spell(heads), fare=pence(fare), total=pence(fare * heads))

    # Dialogues.

    def purchase(self):
        x, y = self.two()
        n, rest = self.dice.between(2, 9), self.dice.between(1, 20)
        return self.lines("""
            {x.name}: Good [morning|day|evening], {y.name}. How much is {y.a_good} today?
            {y.name}: {y.a_good} costs {price}. How many do you need?
            {x.name}: I need {n}. Here are {paid}.
            {y.name}: {n} times {each} is {total}. You get {rest} back.
            {x.name}: [Thank you|That is fair|You count well|Good]. [Greet your {y.animal} from me|Until tomorrow|I will come again on {weekday}|Sleep well tonight].
            """, x=x, y=y, n=spell(n), price=pence(y.price), each=spell(y.price),
            total=spell(n * y.price), paid=pence(n * y.price + rest), rest=pence(rest))

    def way(self):
        x, y = self.two()
        goal = self.other(x, y)
        return self.lines("""
            {x.name}: Excuse me, {y.name}, where is {goal.full}?
            {y.name}: [Go past|Walk to|Turn left at|Turn right at] {mark.place} and count {small} [houses|trees|gates|stones].
            {x.name}: And if {goal.he} is not [there|at {goal.place}]?
            {y.name}: Then {goal.he} is {spot} with {goal.his} {goal.animal}.
            """, x=x, y=y, goal=goal, mark=self.other(goal))

    def sum(self):
        first, second = self.dice.between(2, 12), self.dice.between(2, 12)
        kind = self.dice.pick(["plus", "minus", "times"])
        if kind == "plus":
            return f"{spell(first)} plus {spell(second)}", spell(first + second)
        if kind == "minus":
            first += second
            return f"{spell(first)} minus {spell(second)}", spell(first - second)
        first, second = min(first, 10), min(second, 10)
        return f"{spell(first)} times {spell(second)}", spell(first * second)

    def lesson(self):
        pupil = self.dice.pick(["Pip", "Lena", "Max", "Emmi"])
        lines = []
        for _ in range(self.dice.between(2, 3)):
            ask, answer = self.sum()
            lines += self.lines("""
                Nora: [What is|And what is|Now, what is|Who knows] {ask}?
                {pupil}: {Ask} is {answer}.
                """, pupil=pupil, ask=ask, Ask=cap(ask), answer=answer)
        teacher = next(p for p in PEOPLE if p.trade == "teacher")
        return lines + self.lines("""
            Nora: [Very good|Right|Well done|Quite right], {pupil}. [Now you may play|Now ring the bell|Now read a page|Go and tell {z.full}].
            """, pupil=pupil, z=self.other(teacher))

    def riddle(self):
        x, y = self.two()
        text, right, wrong = self.dice.pick(RIDDLES)
        return self.lines("""
            {x.name}: {text}. What am I?
            {y.name}: [Are you|Could you be|I think you are|Perhaps you are] {wrong}?
            {x.name}: [No|Almost|Not quite|Try again]. Think of {z.place}.
            {y.name}: Then you are {right}. That was [easy|hard|a good one|not fair], {x.name}.
            """, x=x, y=y, z=self.other(y), text=text, right=right, wrong=wrong)

    # Ledgers, rhymes, letters.

    def ledger(self):
        lines, takings = ["Ledger of the market:"], []
        for p in self.dice.sample(PEOPLE, self.dice.between(3, 4)):
            n = self.dice.between(1, 12)
            takings.append(n * p.price)
            goods = p.good if n == 1 else p.goods
            lines.append(f"{p.name} sold {n} {goods}: {n} x {p.price} = {n * p.price}")
        return lines + [f"Together: {' + '.join(map(str, takings))} = {sum(takings)}"]

    def stock(self):
        lines = ["Stock in the barn:"]
        for p in self.dice.sample(PEOPLE, self.dice.between(2, 4)):
            had, change = self.dice.between(5, 40), self.dice.between(1, 20)
            if self.dice.below(2):
                lines.append(f"{p.goods}: {had} + {change} = {had + change}")
            else:
                lines.append(f"{p.goods}: {had + change} - {change} = {had}")
        return lines

    def rhyme(self):
        title = self.say("[The children sang|A song was heard at night|{x.name} wrote a rhyme|A rhyme from {x.place}]:",
                         x=self.dice.pick(PEOPLE))
        lines = []
        for family in self.dice.sample(RHYMES, self.dice.between(2, 3)):
            for pattern, end in zip(self.dice.sample(family, 2), ",."):
                # Patterns with "his" need a man.
                trade = self.dice.pick([p for p in PEOPLE if p.he == "he" or "his" not in pattern])
                lines.append("  " + self.say(pattern + end, x=self.dice.pick(WOMEN), t=trade,
                                             look=self.dice.pick(RHYME_LOOKS), beast=self.dice.pick(BEASTS)[0]))
        return [title] + lines

    def letter(self):
        x, y = self.two()
        return self.lines("""
            Dear {y.name},
            [I hope that|tell me if|I wonder if] you and your {y.animal} are [well|warm|dry|happy].
            I have sent you {gift} [for the feast|by the ferry|as I promised|for your help].
            please bring [your {y.tool}|{meal}|{thing}] when you come to {x.place} on {weekday}.
            your friend {x.full}
            """, x=x, y=y, gift=count(self.dice.between(2, 12), x.good, x.goods),
            thing=a(self.dice.pick(TABLES["look"]) + " " + self.dice.pick(TABLES["find"])))

    # The year.

    def day(self, month, day):
        name, season = MONTHS[month]
        weekday = WEEKDAYS[(day - 1) % 7]
        mood = self.say("[It was {season} and {sky}.|It was {season}, {sky}, and {x.name} {x.deed}.|{sky} while {x.full} {x.deed}.|{x.name} was {feeling}, for {sky}.]",
                        season=season, sky=self.dice.pick(TABLES[season]), x=self.dice.pick(PEOPLE))
        story = self.dice.pick([self.lost_tool, self.visit, self.found_thing, self.day_of_work,
                                self.storm, self.fable, self.ferry_ride])
        after = self.dice.pick([self.purchase, self.purchase, self.way, self.lesson, self.riddle,
                                self.letter, self.rhyme, self.rhyme, self.stock])
        if weekday == "Saturday":
            after = self.ledger
        pieces = [[f"{weekday}, day {day} of {name}", mood], story(), after()]
        return "".join("\n".join(piece) + "\n\n" for piece in pieces)

    def write(self):
        return "".join(self.day(month, day) for month in range(len(MONTHS))
                       for day in range(1, DAYS_PER_MONTH + 1))


def unigram_entropy(text):
    return -sum(c / len(text) * math.log(c / len(text)) for c in Counter(text).values())


def bigram_entropy(text):
    """Mean nats of a character given the one before it."""
    first = Counter(text[:-1])
    pairs = Counter(itertools.pairwise(text))
    return -sum(c * math.log(c / first[pair[0]]) for pair, c in pairs.items()) / (len(text) - 1)


def stats(text):
    lines = [line for line in text.splitlines() if line]
    last_tenth = text[int(0.9 * len(text)):]
    return {
        "bytes": len(text),
        "sha256": hashlib.sha256(text.encode("ascii")).hexdigest(),
        "distinct characters": len(set(text)),
        "lines": len(lines),
        "distinct lines": f"{len(set(lines)) / len(lines):.1%}",
        "ln V": f"{math.log(len(set(text))):.4f}",
        "unigram floor": f"{unigram_entropy(text):.4f}",
        "bigram floor": f"{bigram_entropy(text):.4f}",
        "unigram floor of the last tenth": f"{unigram_entropy(last_tenth):.4f}",
        "bigram floor of the last tenth": f"{bigram_entropy(last_tenth):.4f}",
    }


def main():
    parser = argparse.ArgumentParser(description="Writes the sample corpus; the same bytes on every machine.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="default: data/sample_corpus.txt")
    parser.add_argument("--check", type=Path, metavar="FILE", help="exit 1 unless FILE is what this script would write")
    parser.add_argument("--stats", type=Path, metavar="FILE", help="print size, sha256 and entropies (nats/char)")
    args = parser.parse_args()
    if args.stats:
        for key, value in stats(args.stats.read_text(encoding="ascii")).items():
            print(f"{key}: {value}")
        return 0
    text = Chronicle(seed=2011).write().encode("ascii")
    if args.check:
        if args.check.read_bytes() == text:
            return 0
        print(f"error: {args.check} is not what scripts/corpus/make_corpus.py writes; run it to regenerate",
              file=sys.stderr)
        return 1
    args.output.write_bytes(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
