"""The tables of words that scripts/corpus/make_corpus.py draws from."""


def rows(text):
    """One entry per line, with comma-separated cells."""
    return [[cell.strip() for cell in line.split(",")] for line in text.strip().splitlines()]


def words(text):
    return [cell for row in rows(text) for cell in row]


ONES = words("""zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve,
    thirteen, fourteen, fifteen, sixteen, seventeen, eighteen, nineteen""".replace(",\n", ","))
TENS = words("-, -, twenty, thirty, forty, fifty, sixty, seventy, eighty, ninety")


def a(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


class Person:
    def __init__(self, name, he, trade, place, good, goods, price, tool, animal, deed, likes):
        self.name, self.trade, self.place, self.tool = name, trade, place, tool
        self.good, self.goods, self.price = good, goods, int(price)
        self.animal, self.deed, self.likes = animal, deed, likes
        self.he, self.him, self.his = ("she", "her", "her") if he == "she" else ("he", "him", "his")
        self.full = f"{name} the {trade}"
        self.a_good = a(good)


PEOPLE = [Person(*row) for row in rows("""
Anna, she, baker, the bakery, loaf, loaves, 3, rolling pin, cat, baked bread, the smell of warm bread
Tom, he, miller, the mill, sack of flour, sacks of flour, 8, lantern, donkey, ground the corn, the song of the wheel
Greta, she, smith, the forge, horseshoe, horseshoes, 4, hammer, old dog, shaped the iron, the red light of the fire
Otto, he, fisher, the river, trout, trout, 2, net, heron, mended the boat, the mist on the water
Ida, she, weaver, the loom house, blanket, blankets, 9, shuttle, kitten, wove the wool, the colour blue
Karl, he, shepherd, the high pasture, lamb, lambs, 10, flute, sheepdog, counted the sheep, the quiet of the hill
Rosa, she, gardener, the garden, basket of plums, baskets of plums, 5, spade, tame crow, watered the beans, the first rose of the year
Felix, he, potter, the pottery, jug, jugs, 6, brush, goose, turned the clay, the feel of wet clay
Nora, she, teacher, the school, book, books, 7, chalk, owl, taught the children, a good question
Hugo, he, carpenter, the workshop, chair, chairs, 9, saw, mouse, planed the boards, the smell of pine
Wilma, she, beekeeper, the bee yard, pot of honey, pots of honey, 4, smoker, hen, looked after the hives, the hum of the bees
Ben, he, ferryman, the ferry, bundle of reeds, bundles of reeds, 1, rope, otter, carried people over the river, stories from far away
""")]
WOMEN = [p for p in PEOPLE if p.he == "she"]

MONTHS = rows("""
Thaw, spring
Seed, spring
Blossom, spring
Meadow, summer
Hay, summer
Honey, summer
Harvest, autumn
Apple, autumn
Mist, autumn
Frost, winter
Snow, winter
Candle, winter
""")
WEEKDAYS = words("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")

TABLES = {
    "spring": words("""
        a soft rain fell on the fields, the wind smelled of wet earth, the brook ran high
        the swallows came back, the sun was pale but kind, a rainbow stood over the mill
        the hedges turned green, the first lambs were born"""),
    "summer": words("""
        the sun was hot by noon, a warm wind moved the corn, thunder rolled behind the hill
        the brook ran low, the evening was long and golden, dust lay on the road
        the crickets sang all day, the cherries were ripe"""),
    "autumn": words("""
        the leaves turned red and brown, a cold mist lay on the river, the nights grew longer
        the wind shook the apple trees, the wild geese flew south, it rained from dawn to dusk
        smoke hung over the fields, the barns were full"""),
    "winter": words("""
        snow lay on every roof, the river was frozen at the edge, the wind came from the north
        the stars were sharp and bright, icicles hung from the mill, the road was white and silent
        the frost drew ferns on the glass, the days were short"""),
    "spot": words("""
        under the bridge, behind the barn, beside the well, in the tall grass, on the church wall
        at the edge of the wood, below the old oak, between two stones, in the hay loft
        near the village gate, by the river bank, inside an empty barrel"""),
    "feeling": words("glad, proud, tired, calm, surprised, thankful, hungry, cheerful"),
    "topic": words("""
        the weather, the harvest, the price of salt, the old days, the new bridge, the coming fair
        the wolf on the hill, the road to the city, the stars, the best way to cook fish"""),
    "meal": words("""
        bread and cheese, bean soup, fried trout, apple cake, hot porridge, honey bread
        plum dumplings, barley stew"""),
    "look": words("small, old, gray, bright, broken, heavy, round, wooden, silver, strange, smooth"),
    "find": words("key, coin, ring, bell, button, feather, letter, map, knife, bottle, stone"),
    "want": words("""
        a piece of cheese, a red apple, a warm nest, the moon in the pond, a drop of honey
        the tallest tree, a crown of flowers, a seat by the fire"""),
    "weekday": WEEKDAYS,
    "small": ONES[2:10],
}
VIRTUES = rows("""
patience, the one who waits will see the door open
honesty, a true word weighs more than gold
kindness, what you give comes home again
courage, a small light is enough in a dark room
care, measure twice and cut once
friendship, two can carry what one cannot lift
work, the seed sleeps until the hand is awake
modesty, the full ear of corn bows its head
""")
BEASTS = rows("""
fox, sly
crow, clever
hare, quick
badger, stubborn
mouse, tiny
wolf, hungry
hedgehog, careful
goose, loud
owl, wise
ant, busy
frog, merry
snail, slow
""")
RIDDLES = rows("""
I have teeth but I never eat, a saw, a comb
I run all day but never leave my bed, the river, the brook
I have a neck but no head, a bottle, a jug
I fall in winter and am never hurt, the snow, a raindrop
I grow smaller the longer I shine, a candle, a lamp wick
I have hands but cannot clap, a clock, a scarecrow
I speak when I am struck, a bell, the anvil
I follow you by day and leave you at night, your shadow, a bird
I am full of holes and yet hold water, a sponge, a wet cloth
I have an eye but cannot see, a needle, a storm
""")

# Lines within a family rhyme with each other.
RHYMES = [family.split("/") for family in """
The {look} cart is full of hay/We count the hours of the day/The {beast} turns and runs away/And {x.name} has a word to say/The {look} sky is soft and gray/A lamp will help you find the way/The children of the {t.trade} play
The {beast} walks alone at night/A {look} candle gives us light/The {look} stars are clear and white/The geese have vanished out of sight/And {x.name} holds the lantern tight/The {t.trade} says that all is right
The {beast} sleeps below the hill/The water turns the {look} mill/The {look} pond is deep and still/And {x.name} sings with all her will/The {t.trade} eats and drinks his fill/The winter wind is sharp and shrill
The {beast} hides behind the tree/A {look} flower calls the bee/The {look} brook runs to the sea/And {x.name} counts from one to three/The {t.trade} sets the songbird free/Come over here and sit with me
The {t.trade} brings a loaf of bread/The evening sky is gold and red/The {beast} nods a {look} head/And {x.name} soon will be in bed/The {look} plums are ripe and red/Remember what the teacher said
The {look} roof is loud with rain/The {t.trade} sells a sack of grain/The {beast} knocks upon the pane/And {x.name} passes down the lane/The {look} year is here again/The cart rolls slowly on the plain
The {beast} looks up at the moon/The {t.trade} sleeps until it is noon/And {x.name} plays a {look} tune/The {look} rose will open soon/We stir the honey with a spoon/The fair begins this afternoon
The {t.trade} calls the scattered sheep/The {look} snow is white and deep/The {beast} takes a mighty leap/And {x.name} gently falls asleep/A {look} promise you must keep/The path up to the rock is steep
The {beast} sits upon a stone/And {x.name} walks the road alone/The {look} seed was lightly sown/The {t.trade} works with wood and bone/The {look} wind begins to moan/How tall the apple tree has grown
The {t.trade} rings the {look} bell/The {beast} drinks beside the well/And {x.name} has a tale to tell/The {look} apple shook and fell/The market still has plums to sell/Good night, my friend, and sleep you well
""".strip().splitlines()]
RHYME_LOOKS = words("old, gray, small, round, bright, silver")
