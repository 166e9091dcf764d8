"""Connection budgets."""

from ipaddress import ip_address

from egress.accept.admission import Admission, AdmissionLimits
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage

A, B, C = (ip_address(f"10.0.0.{number}") for number in (1, 2, 3))


def refused(denial: Denial | None) -> ReasonCode | None:
    if denial is None:
        return None
    assert (denial.stage, denial.code) == (Stage.ACCEPT, DenialCode.OVERLOADED)
    return denial.reason_code


def test_the_bound_of_all() -> None:
    admission = Admission(AdmissionLimits(2, 2))
    assert [refused(admission.enter(caller)) for caller in (A, B, C)] == [None, None, ReasonCode.CONNECTIONS]
    assert admission.open == 2
    admission.leave(A)
    assert refused(admission.enter(C)) is None


def test_the_bound_of_one_leaves_room_for_others() -> None:
    admission = Admission(AdmissionLimits(10, 2))
    assert [refused(admission.enter(A)) for _ in range(3)] == [None, None, ReasonCode.CALLER_CONNECTIONS]
    assert refused(admission.enter(B)) is None
    admission.leave(A)
    assert refused(admission.enter(A)) is None


def test_a_refused_connection_counts_nothing_and_nothing_is_remembered_of_who_left() -> None:
    admission = Admission(AdmissionLimits(1, 1))
    assert admission.enter(A) is None
    for _ in range(5):
        assert admission.enter(A) is not None
    admission.leave(A)
    assert (admission.open, dict(admission._callers)) == (0, {})


def test_new_limits_hold_at_once() -> None:
    admission = Admission(AdmissionLimits(10, 10))
    assert admission.enter(A) is None
    admission.limits = AdmissionLimits(1, 1)
    assert refused(admission.enter(B)) is ReasonCode.CONNECTIONS
