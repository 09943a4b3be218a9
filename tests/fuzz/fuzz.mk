# The harnesses of tests/fuzz: replayed by a driver of ours in `make test`, and run by libFuzzer in
# `make fuzz`. Included by the Makefile. Either program holds all of them, each harness under a name
# of its own.

FUZZ_NAMES   = $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_OBJ     = $(BUILD)/tests/fuzz/fuzz.o $(FUZZ_NAMES:%=$(BUILD)/tests/fuzz/fuzz_%.o) \
               $(BUILD)/src/cli/launch/environment.o
FUZZ_SECONDS ?= 300
FUZZ_JOBS    ?= $(shell nproc)
FUZZ_CC      ?= clang

$(FUZZ_NAMES:%=$(BUILD)/tests/fuzz/fuzz_%.o): BASE += -DLLVMFuzzerTestOneInput=$(basename $(notdir $@))
FUZZ_MAINS   = $(BUILD)/tests/fuzz/driver.o $(BUILD)/tests/fuzz/select.o
$(FUZZ_MAINS): BASE += -DFUZZ_HARNESSES="$(foreach n,$(FUZZ_NAMES),X($n))"
$(FUZZ_MAINS): $(wildcard tests/fuzz/fuzz_*.c)

$(BUILD)/tests/fuzz_replay: $(BUILD)/tests/fuzz/driver.o $(FUZZ_OBJ) $(LIBRARY)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $^ -o $@ $(LIBS)

# The libraries that it needs, but for the C library, lie beside it, so that the folder can be carried
# to a machine that has neither a compiler nor the packages.
$(BUILD)/fuzz_trireme: $(BUILD)/tests/fuzz/select.o $(FUZZ_OBJ) $(LIBRARY)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) -fsanitize=fuzzer $^ -o $@ -Wl,-rpath,'$$ORIGIN' $(LIBS)
fuzz-program: $(BUILD)/fuzz_trireme
	@mkdir -p $(BUILD)/carry && rm -rf $(BUILD)/carry/corpus $(BUILD)/carry/fixtures
	@mkdir $(BUILD)/carry/fixtures && cp tests/fixtures/tokenizer_*.json $(BUILD)/carry/fixtures/
	@cp -r tests/fuzz/corpus tools/fuzz_run.sh $(BUILD)/carry/
	@objcopy --strip-debug $(BUILD)/fuzz_trireme $(BUILD)/carry/fuzz_trireme
	@ldd $(BUILD)/fuzz_trireme | awk '$$2 == "=>" { print $$3 }' | \
	  grep -Ev '/lib(c|m|dl|rt|pthread)\.so' | xargs cp -L -t $(BUILD)/carry

.PHONY: fuzz fuzz-build fuzz-program
# build-fuzz/carry holds all that fuzz_run.sh needs, here or elsewhere.
fuzz-build:
	@tools/setup.sh --fuzz
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=build-fuzz CC="$(FUZZ_CC)" CUDA=no \
	  CFLAGS="-O1 -gline-tables-only -fno-omit-frame-pointer -Wno-pass-failed" \
	  SANITIZE="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined" fuzz-program

# Runs each harness for FUZZ_SECONDS of processor time, FUZZ_JOBS of them at a time.
fuzz: fuzz-build
	@tools/fuzz_run.sh build-fuzz/carry $(FUZZ_SECONDS) $(FUZZ_JOBS)
