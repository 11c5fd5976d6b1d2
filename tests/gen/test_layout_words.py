"""What is said of data whose order of steps and sequences may be another than the model's."""

from rtlstm.gen.frontends.reading import describe_layout


def test_one_of_a_kind_is_not_many():
    text = describe_layout("the input", (5000, 1, 2), batch_first=False, model_batch_first=True)
    assert "was read as 5,000 steps of 1 sequence; if it is 5,000 sequences of 1 step, give" in text


def test_data_that_are_refused_need_no_note():
    assert not describe_layout("x", (4, 6, 3), batch_first=False, model_batch_first=True, inputs=2)
