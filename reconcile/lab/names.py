"""Names for the lab's people."""

FIRST_NAMES = tuple(
    """
    Ada Agnès Aiko Alan Amara Ana Anna Arjun Astrid Ayşe Barbara Björn Boris Camille Carlos Chen Chloé Dana Dmitri
    Edsger Elena Émile Fatima Frances François Grace Hana Hedy Ibrahim Inés Ivan Jean José Jürgen Karen Kenji Lars
    Leïla Linus Łukasz Mária Margaret Mehmet Mina Niels Noor Olga Omar Paul Priya Radia Rosa Søren Sofia Tariq Tove
    Ursula Víctor Wanda Xin Yara Yusuf Zoltán
    """.split()  # noqa: SIM905 - a list of sixty strings would be read by nobody
)
LAST_NAMES = tuple(
    """
    Almeida Andersson Bakker Becker Bianchi Brown Chen Costa Demir Díaz Dubois Evans Fernández Fischer García Gómez
    Haddad Hansen Hopper Horvat Ito Ivanov Jansen Johansson Kaya Kim Kowalski Kumar Lamarr Larsen Lee Lovelace Martin
    Meyer Müller Nakamura Nguyen Novák O’Brien Okafor Olsen Papadopoulos Patel Perlman Petrov Popescu Ricci Rossi
    Santos Schmidt Silva Singh Smith Suzuki Svensson Tanaka Turing Virtanen Wagner Weber Wang Yıldız Zhang
    """.split()  # noqa: SIM905
)
DOMAINS = ("example.org", "example.com", "example.net")
