# The harnesses of tests/fuzz: replayed by a driver of ours in `make test`, and run by libFuzzer in
# `make fuzz`. Included by the Makefile.

FUZZ_NAMES   = $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 300
FUZZ_JOBS    ?= $(shell nproc)

# All harnesses in one program, each under a name of its own.
FUZZ_OBJ     = $(FUZZ_NAMES:%=$(BUILD)/tests/fuzz/fuzz_%.o)
$(FUZZ_OBJ): BASE += -DLLVMFuzzerTestOneInput=$(basename $(notdir $@))
$(BUILD)/tests/fuzz/driver.o: BASE += -DFUZZ_HARNESSES="$(foreach n,$(FUZZ_NAMES),X($n))"
$(BUILD)/tests/fuzz/driver.o: $(wildcard tests/fuzz/fuzz_*.c)
$(BUILD)/tests/fuzz_replay: $(BUILD)/tests/fuzz/driver.o $(BUILD)/tests/fuzz/fuzz.o $(FUZZ_OBJ) $(LIBRARY)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $(BUILD)/tests/fuzz/driver.o $(BUILD)/tests/fuzz/fuzz.o $(FUZZ_OBJ) $(LIBRARY) \
	  -o $@ $(LIBS)

# libFuzzer: a program for each harness. Whatever Debian has as an archive is linked in, so that the
# folder can be carried to a machine that has no compiler and none of the packages.
FUZZ_LIBS    = -Wl,-Bstatic $(shell pkg-config --static --libs $(PACKAGES) 2>/dev/null) -Wl,-Bdynamic \
               -lm -ldl -pthread
FUZZERS      = $(FUZZ_NAMES:%=$(BUILD)/fuzz/fuzz_%)
$(BUILD)/fuzz/%.o: tests/fuzz/%.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(BASE) -c $< -o $@
$(BUILD)/fuzz/fuzz_%: $(BUILD)/fuzz/fuzz_%.o $(BUILD)/fuzz/fuzz.o $(LIBRARY)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) -fsanitize=fuzzer $^ -o $@ $(FUZZ_LIBS)
fuzz-programs: $(FUZZERS)
	@rm -rf $(BUILD)/corpus $(BUILD)/fixtures
	@cp -r tests/fuzz/corpus $(BUILD)/corpus
	@mkdir -p $(BUILD)/fixtures && cp tests/fixtures/tokenizer_*.json $(BUILD)/fixtures/
	@cp tools/fuzz_run.sh $(BUILD)/

.PHONY: fuzz fuzz-build fuzz-programs
fuzz-build:
	@tools/setup.sh --fuzz
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=build-fuzz CC="$(FUZZ_CC)" CUDA=no \
	  CFLAGS="-O1 -g -fno-omit-frame-pointer -Wno-pass-failed" \
	  SANITIZE="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined" fuzz-programs
FUZZ_CC ?= clang

# Runs each harness for FUZZ_SECONDS, FUZZ_JOBS of them at a time.
fuzz: fuzz-build
	@tools/fuzz_run.sh build-fuzz $(FUZZ_SECONDS) $(FUZZ_JOBS)
