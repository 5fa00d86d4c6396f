"""Which functions SQL of a contract may call, where Spark runs it or hands it on to a driver that we do not know.

A conservative reading: what engines might read differently is refused, such as a comment in a comment. It needs no
engine, so that a contract that calls what it may not is refused before any starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

_OF_SPARK = """
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or
    collect_list collect_set count count_if every first first_value grouping grouping_id last last_value listagg max
    max_by mean median min min_by mode percentile percentile_approx percentile_cont percentile_disc some std stddev
    stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance
    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_union arrays_overlap
    arrays_zip flatten get sequence slice sort_array
    bit_count bit_get getbit shiftleft shiftright shiftrightunsigned
    cardinality concat element_at reverse size try_element_at
    coalesce if ifnull nanvl nullif nullifzero nvl nvl2 zeroifnull
    bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint try_cast
    from_csv schema_of_csv to_csv
    add_months convert_timezone curdate current_date current_time current_timestamp current_timezone date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtimestamp make_date make_dt_interval
    make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname
    months_between next_day now quarter second time_diff time_trunc timestamp_micros timestamp_millis timestamp_seconds
    timestampadd timestampdiff to_date to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
    try_to_date try_to_time try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday
    weekofyear year
    explode explode_outer inline inline_outer posexplode posexplode_outer stack
    crc32 hash md5 sha sha1 sha2 xxhash64
    from_json get_json_object json_array_length json_object_keys json_tuple schema_of_json to_json
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys transform_values
    zip_with
    map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map
    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp expm1
    factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power radians
    rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract unhex
    width_bucket
    equal_null ilike isnan isnotnull isnull like regexp regexp_like rlike
    ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws contains decode elt
    encode endswith find_in_set format_number format_string initcap instr is_valid_utf8 lcase left len length
    levenshtein locate lower lpad ltrim luhn_check make_valid_utf8 mask octet_length overlay position printf quote
    regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace right rpad
    rtrim sentences soundex space split split_part startswith substr substring substring_index to_binary to_char
    to_number to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper validate_utf8
    named_struct struct
    parse_url try_parse_url try_url_decode url_decode url_encode
    is_variant_null parse_json schema_of_variant schema_of_variant_agg to_variant_object try_parse_json try_variant_get
    variant_get
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    typeof
"""
# Of databases: what is in the standard, and what most have in its place.
_OF_DATABASES = """
    abs ascii avg bigint bin_to_uuid bit_length blob cast ceil ceiling char char_length character_length charindex chr
    clob coalesce concat concat_ws convert count cume_dist current_date current_time current_timestamp date date_add
    date_format date_part date_sub date_trunc dateadd datediff datename datepart datetrunc day dayofmonth dayofweek
    dayofyear decode dense_rank digits double every exp extract first_value float floor
    format from_tz from_unixtime getdate getutcdate greatest group_concat hex hextoraw hour if ifnull iif initcap instr
    int integer isnull json_array json_extract json_object json_query json_unquote json_value lag last_day last_value
    lcase lead least left len length listagg ln localtimestamp locate log log10 lower lpad ltrim max md5 microsecond min
    minute mod month months_between nchar now nth_value ntile nullif numtodsinterval nvarchar nvl nvl2 octet_length
    overlay percent_rank position power quarter quotename rank rawtohex real regexp_like regexp_replace regexp_substr
    repeat replace replicate reverse right round row_number rpad rtrim second sha1 sha2 sign smallint space
    split_part sqrt standard_hash stddev stddev_pop stddev_samp str string_agg strpos substr substring substring_index
    sum sysdate sysdatetime sysutcdatetime time timestamp timestampadd timestampdiff to_char to_date to_number
    to_timestamp to_timestamp_tz translate trim trunc truncate try_cast try_convert ucase unhex unix_timestamp upper
    utc_date utc_timestamp uuid_to_bin value var_pop var_samp varchar variance week xmlcast year
"""
_TYPES = """
    array bigint binary bit blob boolean char character clob date datetime datetime2 datetimeoffset decimal double float
    int integer interval map nchar nclob number numeric nvarchar nvarchar2 raw real smallint string struct text time
    timestamp tinyint varbinary varchar varchar2 varying zone
"""
_BEFORE_PARENTHESES = """
    all and any as between by case cross distinct else except exists filter from full group having ilike in inner
    intersect interval is join lateral like limit minus natural not of offset on or order outer over partition qualify
    regexp rlike select sets some then union using values when where with within
"""
_WRITING = "alter call create delete drop exec execute grant insert into merge revoke update"
_ASKING = ("from", "table", "values", "with")
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\n]+ | --(?=[ \t\n]|$)[^\n\r\\]*(?=\n|$) | /\*(?![+!M])(?:(?!/\*)[^\r])*?\*/)
    | (?P<string>[rR](?:'[^']*'|"[^"]*") | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<name>[^\W\d][\w$]*)
    | (?P<number>(?:0[xX][0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(?:[lLsSyYdDfF]|[bB][dD])?)(?![\w.$]))
    | (?!--|/\*)(?P<sign>[!#-&(-:<-_|~])
    """,
    re.VERBOSE | re.DOTALL,
)
# What some engines end where others do not.
_UNCERTAIN = re.compile(
    r"""
    [qQ]' | [nN][qQ]' | [\#$] | [rR]['"] | `(?![\w $.-]*`)
    | \[(?!(?:[^\]'"`]|'[^'\]]*'|"[^"\]]*")*\])
    | ['"].*(?<!\\)\\(?:\\\\)*['"]
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Calls:
    """What SQL for one kind of engine may call."""

    engine: str
    functions: frozenset[str]
    driver: bool = False
    """Whether a driver hands it on to an engine of which neither quotes nor comments are known."""


SPARK = Calls("Spark", frozenset(_OF_SPARK.split()))
JDBC = Calls("a database behind JDBC", frozenset(_OF_DATABASES.split()), driver=True)


def require_calls(text: str, allowed: Calls, *, tables: bool = False) -> None:
    """Raise ValueError for SQL that calls another function, ends its statement, or could be read in two ways.

    Unless it may ask `tables`, it is an expression over one row.
    """
    awaited: list[str] = []
    called: list[str] = []
    before: list[re.Match[str]] = []
    for token in _tokens(text, allowed):
        word = token.group().lower()
        last = before[-1].group().lower() if before else ""
        if token["name"] and last != ".":
            if word in _WRITES or (last, word) == ("next", "value"):
                raise ValueError(f"`{token.group()}` is not for a contract, which only reads")
            if not tables and (word == "select" or (word in _ASKING and last == "(")):
                raise ValueError(f"`{token.group()}` would ask a table: an expression is about one row")
        if word == "nextval":
            raise ValueError(f"`{token.group()}` would count on")
        if last == "using" and token["string"]:
            raise ValueError("`using` and a text would run a program")
        if word == "(":
            called += _called(before)
        if word in _CLOSES:
            awaited.append(_CLOSES[word])
        elif word in _CLOSES.values() and (not awaited or awaited.pop() != word):
            raise ValueError(f"a `{word}` closes nothing")
        before = [*before[-1:], token]
    if awaited:
        raise ValueError(f"a `{awaited[-1]}` is missing")
    require_functions(called, allowed)


def require_functions(names: Iterable[str], allowed: Calls) -> None:
    """Raise ValueError for functions that are not among those that may be called."""
    unknown = [name for name in dict.fromkeys(names) if name.lower() not in allowed.functions]
    if unknown:
        which = "functions" if len(unknown) > 1 else "function"
        known = sorted(allowed.functions)
        near = (each for name in unknown for each in get_close_matches(name.lower()[:100], known, n=1))
        meant = ", ".join(f'"{each}"' for each in near)
        raise ValueError(
            f"the {which} {', '.join(unknown)} may not be called in SQL for {allowed.engine}"
            f"{f'; did you mean {meant}?' if meant else ':'} docs/security.md says which may; what the store"
            " itself can compute, put into a view there"
        )


def _tokens(text: str, allowed: Calls) -> Iterator[re.Match[str]]:
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(_unread(text[position:]))
        if allowed.driver and not token["space"]:
            around = token.group() + text[token.end() : token.end() + 1] if token["name"] else token.group()
            if _UNCERTAIN.match(text, position) if token["sign"] or token["quoted"] else _UNCERTAIN.fullmatch(around):
                raise ValueError(f"{_shown(token.group())} may be read in two ways: write it otherwise, or make a view")
        position = token.end()
        if not token["space"]:
            yield token


def _called(before: list[re.Match[str]]) -> Iterator[str]:
    """Name the function that is called, by what stands before a parenthesis."""
    if not before or before[-1]["number"] or before[-1]["sign"]:
        return
    name, previous = before[-1].group(), before[0].group().lower() if len(before) > 1 else ""
    if previous == ".":
        raise ValueError(f"a function is called by its name alone, and not as one of something: .{name}")
    if before[-1]["name"]:
        if name.lower() not in _KEYWORDS and previous != "as":
            yield name
    elif name[0] != "'":
        raise ValueError(f"a function's name is not quoted: {_shown(name)}")


def _unread(rest: str) -> str:
    if rest[0] == ";":
        return "a `;` would end the statement"
    if rest[0] in "'\"`":
        return f"a {rest[0]} is not closed"
    return f"{_shown(rest)} may be read in two ways: write it otherwise, or make a view"


def _shown(text: str) -> str:
    return repr(text[:10])


_WRITES = frozenset(_WRITING.split())
_CLOSES = {"(": ")", "[": "]"}
_KEYWORDS = frozenset(_TYPES.split()) | frozenset(_BEFORE_PARENTHESES.split())
