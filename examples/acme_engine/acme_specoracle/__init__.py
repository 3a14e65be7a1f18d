"""Adapters for Acme. Import the engine inside the functions: this module is also read by
the supervisor, which must not import engines."""

from fuzz.adapter import adapter


@adapter(
    engine="acme",
    contract="verify.greedy_chain",
    module="accept",
    symbol="accept",
    observes=("accepted", "bonus_token"),
    needs=(),
    execution="python",
)
def accept(engine, case):
    import acme

    with engine.production():
        accepted, bonus = acme.accept(case.block, case.predicted)
    return {"accepted": accepted.tolist(), "bonus_token": bonus.tolist()}
