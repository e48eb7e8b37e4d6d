"""Vocabulary of the generated training texts (``training/stories.py``), one entry per line."""

from __future__ import annotations


def rows(text: str) -> list[tuple[str, ...]]:
    """Splits lines at colons and drops surrounding spaces."""
    return [tuple(part.strip() for part in line.split(":")) for line in text.strip().splitlines()]


def words(text: str) -> list[str]:
    """Splits at commas."""
    return [word.strip() for word in text.split(",")]


ANIMALS = rows("""
dog : in the house : meat : bark at strangers
cat : in the house : fish : climb trees
horse : on the farm : grass : run very fast
cow : on the farm : grass : give milk
sheep : in the field : grass : give wool
goat : on the hill : leaves : climb over rocks
pig : on the farm : apples : find food in the mud
hen : on the farm : seeds : lay eggs
duck : by the lake : plants : swim well
goose : by the lake : grass : fly far to the south
mouse : in the wall : cheese : hide in a small hole
rabbit : in the field : carrots : jump high
fox : in the forest : small animals : hunt at night
wolf : in the forest : meat : howl at the moon
bear : in the forest : honey : sleep all winter
deer : in the forest : leaves : run from danger
owl : in the forest : mice : see in the dark
squirrel : in the tree : nuts : climb very fast
bird : in the tree : seeds : sing in the morning
eagle : on the mountain : small animals : fly very high
frog : by the river : insects : jump into the water
fish : in the river : plants : swim all day
whale : in the sea : small fish : sing under the water
turtle : by the sea : plants : carry its house on its back
bee : in the garden : sugar : make honey
spider : in the corner : insects : make a web
snake : in the grass : mice : move without a sound
monkey : in the jungle : fruit : swing from tree to tree
lion : on the plain : meat : roar loudly
elephant : on the plain : leaves : remember many things
""")
"""Name, where it lives, what it eats, what it can do."""

THINGS = rows("""
lantern : a lamp that you can carry : see in the dark
lamp : an object that gives light : read at night
candle : a stick of wax that burns : light a room
boat : a small ship : cross the water
ship : a large boat : travel over the sea
cart : a wagon with two wheels : carry heavy loads
bicycle : a machine with two wheels : ride to school
train : a long line of cars on a track : travel to the city
book : a set of pages with words : learn about the world
letter : a message on paper : write to a friend
map : a picture of the land : find the way
pen : a tool for writing : write a letter
clock : a machine that shows the time : know the time
key : a small piece of metal : open a door
door : a way into a room : enter a house
window : a piece of glass in a wall : look outside
hammer : a heavy tool : build a house
knife : a tool with a sharp edge : cut bread
rope : a long and strong string : tie a boat
bell : a piece of metal that rings : call people
drum : a round instrument : make music
violin : an instrument with four strings : play a song
ball : a round toy : play in the garden
kite : a toy that flies in the wind : play on the hill
doll : a toy that looks like a child : play at home
hat : a piece of clothing for the head : keep the sun away
coat : a warm piece of clothing : stay warm in winter
blanket : a large warm cloth : sleep well
chair : a piece of furniture : sit down
table : a piece of furniture with a flat top : eat dinner
bed : a piece of furniture : sleep at night
cup : a small bowl with a handle : drink tea
basket : a container made of wood : carry fruit
bottle : a container made of glass : keep water
coin : a small round piece of metal : buy bread
ring : a small circle of gold : show love
mirror : a piece of glass that shows your face : see yourself
telescope : an instrument with lenses : look at the stars
compass : an instrument that points north : find the way at sea
bridge : a road over the water : cross the river
""")
"""Name, what it is, what it is used for (after "to")."""

PLACES = rows("""
house : a building where people live : sleep and eat
school : a place where children learn : read and write
market : a place where people buy food : buy fruit and bread
library : a room full of books : read in silence
kitchen : a room where people cook : make dinner
garden : a piece of land with flowers : grow vegetables
park : a green place in a city : walk and play
farm : a place where food is grown : raise animals
village : a small group of houses : meet their neighbors
city : a large town with many streets : live and work
castle : a large old building with thick walls : stay safe
harbor : a safe place for ships : wait for the boats
forest : a large area with many trees : walk among the trees
river : a long stream of water : fish and swim
lake : a large body of fresh water : swim in summer
sea : a very large body of salt water : sail and fish
beach : a strip of sand by the sea : play in the sand
island : a piece of land in the water : live by the sea
mountain : a very high hill : climb and look far away
valley : the low land between two hills : keep sheep
desert : a dry land with much sand : travel with care
cave : a hollow place under the ground : hide from the rain
hospital : a place for sick people : get well again
theater : a place with a stage : watch a play
""")
"""Name, what it is, what people do there."""

JOBS = rows("""
baker : makes bread : bread
farmer : grows food : corn
fisherman : catches fish : fish
doctor : helps sick people : medicine
teacher : helps children learn : books
sailor : works on a ship : ropes
soldier : defends the country : orders
king : rules a country : laws
queen : rules a country : gold
painter : makes pictures : colors
singer : sings songs : music
cook : prepares food : soup
miller : makes flour : grain
smith : makes tools of iron : iron
gardener : takes care of plants : flowers
hunter : follows animals in the forest : tracks
judge : decides what is right : laws
writer : tells stories : words
""")
"""Name, what the person does, what the person knows much about."""

FOODS = rows("""
bread : flour : honey
soup : vegetables : bread
cake : flour and sugar : tea
cheese : milk : bread
butter : milk : bread
pie : apples : milk
salad : green leaves : cheese
jam : fruit and sugar : bread
honey : flowers by the bees : tea
rice : the seeds of a plant : vegetables
pasta : flour and water : cheese
pizza : bread and cheese : a green salad
chocolate : beans and sugar : milk
""")
"""Name, what it is made from, what it is eaten with."""

PLANTS = rows("""
oak : tree : in the forest : strong wood
pine : tree : on the mountain : green needles
apple tree : tree : in the garden : red fruit
rose : flower : in the garden : a sweet smell
tulip : flower : in the garden : bright colors
lily : flower : by the lake : white petals
grass : plant : in the field : thin green leaves
corn : plant : on the farm : yellow seeds
wheat : plant : on the farm : seeds for bread
ivy : plant : on old walls : dark leaves
fern : plant : in the forest : soft leaves
willow : tree : by the river : long branches
""")
"""Name, kind, where it grows, what it has."""

NATURE = rows("""
rain : water that falls from the clouds : makes the plants grow
snow : soft white ice that falls from the sky : covers the ground
wind : air that moves : carries the clouds
storm : bad weather with strong wind : breaks the trees
sun : the star that gives us light : warms the earth
moon : the bright body in the night sky : shines at night
star : a far light in the sky : guides the sailors
cloud : water high in the air : brings the rain
fire : hot light from things that burn : keeps us warm
ice : water that is very cold : covers the lake in winter
morning : the first part of the day : brings the light
night : the dark time after the day : brings sleep
winter : the cold part of the year : brings snow
summer : the warm part of the year : brings long days
spring : the time after winter : brings the flowers
autumn : the time after summer : turns the leaves red
""")
"""Name, what it is, what it does."""

HOBBIES = rows("""
reading : I learn about other places : read a book
singing : it makes my heart light : sang a song
cooking : my family eats together : cooked a warm soup
walking : the air is fresh : went for a long walk
swimming : the water is cool : swam in the lake
painting : I love the colors : painted a small picture
dancing : I love the music : danced with my friends
fishing : the river is quiet : caught a big fish
studying : it opens the mind : learned something new
gardening : I see how things grow : worked in the garden
playing music : it brings people together : played a song
riding a bicycle : I feel the wind : rode my bicycle to the lake
""")
"""Name, a reason to like it (after "because"), and doing it in the past (after "I")."""

MEN = words("Tom, Ben, Max, Sam, John, Peter, Leo, Jack, Paul, Henry")
WOMEN = words("Anna, Lily, Mary, Rosa, Emma, Jane, Clara, Lucy, Nora, Ella")
FAMILY = words("my mother, my father, my sister, my brother, my friend, my grandmother, my family")
SIZES = words("small, big, young, old, little, large")
COLORS = words("red, blue, green, white, black, brown, yellow, golden")
GOOD = words("happy, glad, proud, brave, kind, calm, cheerful, grateful")
BAD = words("sad, afraid, angry, tired, lonely, worried, hungry, lost")
FINE = words("beautiful, wonderful, lovely, warm, bright, pleasant, fine, sweet")
POOR = words("terrible, ugly, cold, dark, bitter, broken, dirty, cruel")
