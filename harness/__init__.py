"""Inferometer: one timing contract for all backends.

    configs/<name>.yaml
       │ plan          expand the matrix, give every case an id
    results/plan.json
       │ export        model → weights, ONNX, inputs, reference outputs     models/<model>/
       │ build_engine  ONNX → TensorRT engines, checked on this very GPU    models/<model>/engines/
       │ roof          the measured limits of this CPU or GPU               results/roof.json
       │ run           a fresh process per case and round                   results/raw/<case>/<round>.json
       │ generate      prefill and decode, token by token                   results/generation/<case>/<round>.json
       │ load          scenarios: replay, then real replications            results/load/<load>/<point>/
       │ energy        joules per inference, in a separate pass             results/energy/<case>.json
       │ profile_ops   the cost of a model, layer by layer                  results/profiles/<case>/
       │ aggregate     join plan with raw                                   results/summary.{json,csv}
       │ report        tables and charts                                    results/report.{md,html}, charts/*.{png,svg}
       │ share         tables and figures for other programs                results/tables/*.csv, metrics.prom; MLflow
       │ compare       with an earlier summary, with limits: exit code      results/comparison.{md,json}, junit.xml
       │ dispatch      the plan on other machines: Ray, Slurm               results/machines/…, fleet.{json,md}
       │ history       runs over time: where a case became slower           <store>/history.{json,html}
       │ reproduce     a published claim, compared with a run here          results/reproduce/<claim>/…
       │ bundle        one run and all its records in one archive           results/<plan_id>.tar.xz
       │ verify        a bundle: checksums, and the same report again       nothing

Each stage is `python -m harness.<stage>`; stages meet only in these files.
"""

import sys

# While Python locates the module of `python -m`, the first argument is "-m" (its documentation). A stage imports its
# libraries for a second before its own code can answer Ctrl-C. A program that imports the package keeps its own hook.
if sys.argv[:1] == ["-m"]:
    from harness.core.cli import check_limits, uncaught

    sys.excepthook = uncaught
    # Set here already: else a library that fails to load would print its own traceback.
    check_limits()
