import random, sys, time
from collections import Counter
from fuzz import adapter as A
from fuzz.engines.provision import provision
from fuzz.engines.spec import EngineSpec
from fuzz.executor import execute
from fuzz.presentation import Presentation
from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import RandomSource
from fuzz.supervisor import Launch, Session

def session_for(version):
    from fuzz.launch import launch_for
    from fuzz.engines.spec import parse
    s = Session(launch_for(parse(f"sglang=={version}"))); t=time.time(); s.start(); print(version, "import", round(time.time()-t,1), s.ready["unsupported"]); return s

def try_target(s, target, n=300, seed=0, show=3):
    (a,) = A.select("sglang", target); st = structure_of(a.contract); c = Counter(); shown = 0; reached=Counter(); t=time.time()
    for i in range(n):
        src = RandomSource(f"{seed}-{i}"); case = st(src)
        how = Presentation(strided=i % 4 == 1, order=i if i % 4 == 2 else 0, padding=i % 3 if i % 4 == 3 else 0, repeat=i % 5 == 0)
        v = execute(s, a, case, how); c[str(v.kind)] += 1; reached.update(v.behaviours)
        if str(v.kind) not in ("AGREE",) and (v.red or str(v.kind)!="UNSUPPORTED") and shown < show:
            shown += 1; print(v.kind, v.identity, {k: str(x)[:1500] for k, x in v.evidence.items()}, how, "\n  case:", str(case)[:800])
    print(a.id, dict(c), f"{(time.time()-t)/n*1e3:.1f} ms/case", "reached", len(reached)); return c
