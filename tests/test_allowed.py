"""Allowed prompts: against plain Python on every prompt, and refusals that name what is wrong."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import CONDITIONS, says, sequences

from posteer.core.errors import InputError
from posteer.tokens.conditions import EXAMPLE, AllowedPrompts, parse_allowed
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions


@pytest.mark.parametrize(("vocab", "length", "text"), CONDITIONS)
def test_every_prompt_against_reading_the_conditions_as_text(vocab, length, text):
    allowed = parse_allowed(text, vocab)
    prompts = all_sequences(vocab, length)
    found = allowed.allows(prompts).tolist()
    expected = [says(text, prompt) for prompt in sequences(vocab, length)]
    assert found == expected
    assert any(expected), "a case that allows nothing shows nothing"
    mask = allowed.token_mask(length)
    inside = mask[torch.arange(length), prompts].all(-1)
    assert bool(inside[torch.tensor(expected)].all())


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("vocab", "length", "text"), CONDITIONS)
def test_classes_violate_as_their_prompts_do_where_counts_decide(vocab, length, text, order):
    allowed = parse_allowed(text, vocab)
    long = max([0, *(len(gram) for gram in allowed.banned)])
    assert allowed.decided_by_counts(order) == (long <= order + 1 and not allowed.positions)
    if not allowed.decided_by_counts(order):
        return
    space = ContextSpace(vocab, order)
    ends = ContextSpace(vocab, allowed.context_order(order))
    prompts = all_sequences(vocab, length)
    found = allowed.class_violations(
        space,
        count_transitions(space, prompts).long(),
        ends,
        ends.encode(prompts[:, : ends.order]),
        ends.suffix(prompts),
    )
    assert torch.equal(found, allowed.violations(prompts))


def test_a_predicate_sees_each_prompt():
    palindrome = AllowedPrompts(vocab_size=2, predicate=lambda prompt: prompt == prompt[::-1])
    found = palindrome.allows(all_sequences(2, 4)).sum()
    assert int(found) == 4
    assert not palindrome.decided_by_counts(5)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 14), min_size=1, max_size=4))
def test_large_vocabularies_write_tokens_with_dots(gram):
    text = ".".join(map(str, gram))
    allowed = parse_allowed(f"ban={text}", 15)
    assert allowed.banned == (tuple(gram),)
    prompt = torch.tensor([[3, *gram, 3]])
    assert int(allowed.violations(prompt)) >= 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("start=0", "allowed prompts: 'start=0': expected such as first=0;last=1"),
        ("first", "'first': expected a condition such as first=0"),
        ("first=2", "'first=2' has the symbol '2': expected symbols 0 to 1"),
        ("first=a", "'first=a' has the symbol 'a': expected symbols 0 to 1"),
        ("first=0;first=1", "'first' is given twice"),
        ("first=0,1", "expected one row of tokens"),
        ("first<=0", "only counts are compared"),
        ("count=3", r"expected count\(number\)"),
        ("ban(2)=11", "expected ban="),
        ("count(1)<=x", "expected a whole number"),
        ("count(7)<=2", "token 7: expected 0 to 1"),
        ("count(1)<=2;count(1)>=3", "at least 3 and at most 2 cannot both hold"),
        ("position(0)=1", "positions count from 1"),
        ("position(2)=11", "expected tokens"),
        ("ban=11,", "the row of tokens in allowed prompts 'ban=11,' is empty"),
    ],
)
def test_bad_conditions_are_refused(text, complaint):
    with pytest.raises(InputError, match=complaint):
        parse_allowed(text, 2)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("position(9)=1", "position 9: the prompt has 4 tokens"),
        ("first=00000", "position 5: the prompt has 4 tokens"),
        ("first=0;position(1)=1", "no token is allowed at position 1"),
        ("first=00;last=111", "no token is allowed at position 2"),
        ("count(1)>=5", "the counts ask for 5 tokens"),
    ],
)
def test_conditions_that_no_prompt_of_a_length_can_meet(text, complaint):
    allowed = parse_allowed(text, 2)
    with pytest.raises(InputError, match=complaint):
        allowed.token_mask(4)


def test_the_example_of_the_error_message_is_one():
    assert parse_allowed(EXAMPLE, 2).bounds == ((1, 0, 10),)
