# Trireme. `make` builds, `make demo` shows it, `make test` proves it; see README.md.
#
# Packages that are missing are installed by the set-up step (tools/setup.sh) where that is allowed.

VERSION := $(shell sed -n 's/^.define TRIREME_VERSION "\(.*\)"/\1/p' include/trireme/version.h)
PREFIX  ?= /usr/local
BUILD   ?= build
CC      ?= gcc
SHELL    = /bin/bash
# V=1 shows the commands.
ifeq ($(V),1)
say      = @:
Q        =
else
say      = @printf '  %-6s %s\n'
Q        = @
endif

WARN     = -Wall -Wextra -Werror -Wno-format-truncation -Wno-unknown-warning-option
CFLAGS  ?= -O2 -g
BASE     = -std=c17 -D_GNU_SOURCE $(WARN) -Iinclude -Isrc -MMD -MP -pthread $(CFLAGS) $(SANITIZE)
# The fast CPU kernels: vectorised, once for each instruction set; the choice is made at run time.
FAST     = -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast
ISA_base   =
# prfchw: lines that will be written are fetched as such; a processor without it does nothing.
ISA_avx2   = -march=x86-64-v3 -mprfchw
ISA_avx512 = -march=x86-64-v4 -mprfchw -mprefer-vector-width=512
ifeq ($(shell uname -m),x86_64)
ISAS     = base avx2 avx512
else
ISAS     = base
endif

PACKAGES = yaml-0.1 jansson oniguruma libutf8proc zlib libzstd libcrypto libmicrohttpd
# What the library needs besides the packages; trireme.pc gets both from here.
OWN_LIBS = $(SANITIZE) -lm -ldl -pthread
LIBS     = $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) $(OWN_LIBS)

# The GPU part is built where there is an nvcc; CUDA=no leaves it out. The CUDA runtime is linked in
# (it opens the driver by itself), everything else of CUDA is opened at run time.
CUDA    ?= $(if $(NVCC),yes,no)
# Why there is none, for messages: somebody said CUDA=no (left-out), or no nvcc was found (no).
CUDA_STATE = $(if $(filter yes,$(CUDA)),yes,$(if $(filter file,$(origin CUDA)),no,left-out))
NVCC    ?= $(firstword $(wildcard $(shell command -v nvcc) /usr/local/cuda/bin/nvcc))
CUDA_HOME = $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_ARCH ?= -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a
NVFLAGS  = -std=c++17 -O3 --compress-mode=size -Isrc -Iinclude --compiler-options -Wall,-Wextra $(CUDA_ARCH)

FAST_SRC = $(wildcard src/device/cpu/fast/*.c)
CLI_SRC  = $(wildcard src/cli/*.c src/cli/*/*.c)
LIB_SRC := $(filter-out $(CLI_SRC) $(FAST_SRC),$(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c))
FAST_OBJ = $(foreach isa,$(ISAS),$(FAST_SRC:%.c=$(BUILD)/%.$(isa).o))
CUDA_SRC = $(wildcard src/device/cuda/*.cu src/device/cuda/*/*.cu)
ifeq ($(CUDA),yes)
CUDA_OBJ = $(CUDA_SRC:%.cu=$(BUILD)/%.cu.o)
BASE    += -DTRI_CUDA -isystem $(CUDA_HOME)/include
CUDA_LIB = $(dir $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a \
             $(CUDA_HOME)/lib/libcudart_static.a $(CUDA_HOME)/targets/*/lib/libcudart_static.a)))
OWN_LIBS += $(CUDA_LIB:%/=-L%) -lcudart_static -lstdc++ -lrt
else
LIB_SRC := $(filter-out src/device/cuda/%,$(LIB_SRC))
endif
LIB_OBJ  = $(LIB_SRC:%.c=$(BUILD)/%.o) $(FAST_OBJ) $(CUDA_OBJ)
CLI_OBJ  = $(CLI_SRC:%.c=$(BUILD)/%.o)

LIBRARY  = $(BUILD)/libtrireme.a
# Beside it a shared library, whose symbols have versions, where the compiler makes
# position-independent code without being told, as Debian's do. Sanitizers want programs of their own.
SONAME   = libtrireme.so.$(firstword $(subst ., ,$(VERSION)))
SHARED   = $(if $(SANITIZE),,$(if $(shell $(CC) -dM -E -x c /dev/null | grep __PIE__),$(BUILD)/$(SONAME)))
PROGRAM  = $(BUILD)/trireme
# Tests lie in folders by area, their programs in one.
TEST_SRC = $(wildcard tests/test_*.c tests/*/test_*.c)
TESTS    = $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(TEST_SRC)))
TEST_SUPPORT = $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
# Programs that tests run.
HELPERS  = $(patsubst tests/%.c,$(BUILD)/tests/%,$(filter-out %_shim.c,$(wildcard tests/helpers/*.c))) \
           $(patsubst tests/helpers/%_shim.c,$(BUILD)/tests/helpers/lib%-shim.so,$(wildcard tests/helpers/*_shim.c))
# A stand-in for NCCL, with which ranks share a GPU; see tests/gpu_nccl.sh. Needs NCCL's header.
ifeq ($(CUDA),yes)
STANDIN  = $(if $(wildcard $(CUDA_HOME)/include/nccl.h),$(BUILD)/tests/helpers/libnccl-standin.so)
endif
# The MPI plug-in, where there is an MPI to build it for; see src/comm/transport/mpi_plugin.h.
MPICC   ?= $(shell command -v mpicc 2>/dev/null)
PLUGINS  = $(if $(MPICC),$(BUILD)/trireme-mpi.so)
EXAMPLES = $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))
BENCHES  = $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))

.PHONY: all setup programs demo test test-programs test-full test-whole soak bench asan asan-quick quick-binaries tsan install \
        install-files format format-check lint docs clean
# Objects of tests are kept. Only they: whatever is secondary may be missing without being made, and
# what is said below of CUDA relies on a file that is missing.
.SECONDARY: $(patsubst %.c,$(BUILD)/%.o,$(TEST_SRC) $(wildcard tests/support/*.c tests/helpers/*.c))
.DEFAULT_GOAL := all

# Set-up first, then a second make that sees the packages it installed.
all test-programs: setup
	@$(MAKE) --no-print-directory -j$$(nproc) $(if $(filter all,$@),programs,test-binaries)

setup:
	@tools/setup.sh

programs: $(PROGRAM) $(LIBRARY) $(SHARED) $(EXAMPLES) $(PLUGINS)

test-binaries: programs $(TESTS) $(BENCHES) $(HELPERS) $(STANDIN) $(BUILD)/tests/fuzz_replay \
  $(if $(MPICC),$(BUILD)/tests/helpers/trireme-mpi.so)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(BASE) -c $< -o $@

# What knows of CUDA is built anew when CUDA comes or goes: everything that says TRI_CUDA.
$(BUILD)/cuda-$(CUDA_STATE):
	@mkdir -p $(@D)
	@rm -f $(BUILD)/cuda-*
	@touch $@
$(BUILD)/src/device/device.o $(LIBRARY) \
$(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/device/test_cuda_*.c)): $(BUILD)/cuda-$(CUDA_STATE)
$(BUILD)/src/device/device.o: BASE += $(if $(filter left-out,$(CUDA_STATE)),-DTRI_CUDA_LEFT_OUT)

$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) $(NVFLAGS) -MMD -MP -c $< -o $@

# Files of the page are in the program (.incbin), of which the compiler tells make nothing.
$(BUILD)/src/cli/page/page_assets.o: $(wildcard src/cli/page/*.html src/cli/page/*.css src/cli/page/*.svg src/cli/page/*.js \
  src/cli/view/*.html src/cli/view/*.js)

define isa_rule
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	$$(say) CC "$$< ($(1))"
	$$(Q)$(CC) $(BASE) $(FAST) $(ISA_$(1)) -DTRI_ISA=$(1) -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

$(LIBRARY): $(LIB_OBJ)
	@rm -f $@
	$(say) AR $@
	$(Q)ar rcs $@ $(LIB_OBJ)

# Code for programs does for a shared library that binds its own symbols, but where it uses data of
# other libraries or of a thread. The linker names a file that is missing here.
$(patsubst %,$(BUILD)/src/%.o,base/json run/launcher_child data/tokenizer/pretokenize_pattern api/run_processes): BASE += -fPIC
$(BUILD)/$(SONAME): $(LIBRARY) tools/libtrireme.map
	$(say) LINK $@
	$(Q)$(CC) -shared $(CFLAGS) -Wl,-soname,$(SONAME) -Wl,--version-script=tools/libtrireme.map -Wl,-z,defs \
	  -Wl,--whole-archive $(LIBRARY) -Wl,--no-whole-archive -o $@ $(LIBS)

$(PROGRAM): $(CLI_OBJ) $(LIBRARY)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $(CLI_OBJ) $(LIBRARY) -o $@ $(LIBS)

$(BUILD)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(BASE) -Itests/support -c $< -o $@

$(foreach src,$(TEST_SRC),$(eval $(BUILD)/tests/$(basename $(notdir $(src))): $(BUILD)/$(src:.c=.o)))
$(TESTS): $(TEST_SUPPORT) $(LIBRARY)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $(filter %/$(@F).o,$^) $(TEST_SUPPORT) $(LIBRARY) -o $@ -lcmocka $(LIBS)

# Optional: a broken mpicc must not keep anybody from building the rest. Where the umask lets a group
# write, the program would refuse it (src/comm/transport/library.h).
$(BUILD)/trireme-mpi.so: plugins/mpi.c src/comm/transport/mpi_plugin.h include/trireme/comm.h
	@mkdir -p $(@D)
	$(say) MPICC $@
	$(Q)$(MPICC) -std=c17 -O2 -g -Wall -Iinclude -Isrc -shared -fPIC $< -o $@ && \
	  chmod go-w $(@D) $@ || \
	  echo "  the MPI plug-in was not built: $(MPICC) failed; run.transport=mpi will not work"

# Programs look for it in their own folder.
$(BUILD)/tests/helpers/trireme-mpi.so:
	@mkdir -p $(@D)
	@ln -sf ../../trireme-mpi.so $@

HELPER_SUPPORT = $(patsubst %,$(BUILD)/tests/support/%.o,comm_cases message_run ring_case rooms_case fake_gpu fake_nccl)
$(BUILD)/tests/helpers/%: tests/helpers/%.c $(HELPER_SUPPORT) $(LIBRARY)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) -Itests/support $< $(HELPER_SUPPORT) $(LIBRARY) -o $@ $(LIBS)

# For LD_PRELOAD: in front of the C library, without sanitizers.
$(BUILD)/tests/helpers/lib%-shim.so: tests/helpers/%_shim.c
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE $(WARN) -O2 -fPIC -shared -pthread $< -o $@ -ldl

$(BUILD)/tests/helpers/libnccl-standin.so: tests/helpers/nccl_standin.cu
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) -std=c++17 -O2 -shared -Xcompiler -fPIC,-fvisibility=hidden $(CUDA_ARCH) $< -o $@ -lrt

$(BUILD)/examples/%: examples/%.c $(LIBRARY)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $< $(LIBRARY) -o $@ $(LIBS)

# bench/ops shares its table of cases with the tests.
$(BUILD)/bench/%: bench/%.c $(BUILD)/tests/support/op_cases.o $(LIBRARY)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) -Itests/support $< $(BUILD)/tests/support/op_cases.o $(LIBRARY) -o $@ $(LIBS)

demo: all
	@tools/demo.sh $(PROGRAM)

# Every test is a process of its own with a time limit; the last line counts them.
test: test-programs
	@tools/run_tests.sh $(BUILD)

# More of everything: within two hours on two cores. All of everything: many hours.
test-full: test-programs
	@TRIREME_TEST_FULL=1 tools/run_tests.sh $(BUILD)

test-whole: test-programs
	@TRIREME_TEST_FULL=whole tools/run_tests.sh $(BUILD)

# Random kills: minutes, or as many as SOAK_KILLS says. Then faults of every kind for SOAK_SECONDS.
soak: test-programs
	@bash tests/soak.sh $(BUILD)
	@bash tests/soak_recovery.sh $(BUILD)
	@bash tests/soak_composed.sh $(BUILD)

include tests/fuzz/fuzz.mk

ASAN = BUILD=build-asan CFLAGS="-O1 -g -fno-omit-frame-pointer -DTRI_ATTR_APART" \
       SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
asan:
	@$(MAKE) --no-print-directory $(ASAN) test
# The tests of tests/quick.txt alone, without the GPU part: minutes.
asan-quick: setup
	@$(MAKE) --no-print-directory -j$$(nproc) $(ASAN) CUDA=no quick-binaries
	@TEST_LIST="$(QUICK)" tools/run_tests.sh build-asan
QUICK = $(shell sed 's/\#.*//' tests/quick.txt)
quick-binaries: programs $(HELPERS) $(BUILD)/tests/fuzz_replay \
  $(filter $(QUICK:%=$(BUILD)/tests/%),$(TESTS))

tsan:
	@TSAN_OPTIONS="history_size=7 suppressions=$(CURDIR)/tools/tsan.txt $$TSAN_OPTIONS" \
	  $(MAKE) --no-print-directory BUILD=build-tsan CFLAGS="-O1 -g" SANITIZE="-fsanitize=thread" test

bench: all
	@$(MAKE) --no-print-directory $(BENCHES)
	@bench/run.sh $(BUILD)

install: all
	@$(MAKE) --no-print-directory install-files

# What has been built, as it is: nothing is made anew. Completion and manual pages come from the
# program's own tables.
WORDS = man/man1 bash-completion/completions zsh/site-functions
install-files:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig \
	  $(DESTDIR)$(PREFIX)/include/trireme $(DESTDIR)$(PREFIX)/share/trireme/recipes
	install -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(LIBRARY) $(DESTDIR)$(PREFIX)/lib/
	[ ! -f $(BUILD)/$(SONAME) ] || { install -m 755 $(BUILD)/$(SONAME) $(DESTDIR)$(PREFIX)/lib/libtrireme.so.$(VERSION) && \
	  ln -sf libtrireme.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/$(SONAME) && \
	  ln -sf $(SONAME) $(DESTDIR)$(PREFIX)/lib/libtrireme.so && \
	  sed -e 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' tools/trireme-shared.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/trireme-shared.pc; }
	install -m 644 include/trireme/*.h $(DESTDIR)$(PREFIX)/include/trireme/
	[ ! -f $(BUILD)/trireme-mpi.so ] || install -D -m 755 $(BUILD)/trireme-mpi.so \
	  $(DESTDIR)$(PREFIX)/lib/trireme/trireme-mpi.so
	install -m 644 recipes/*.yaml $(DESTDIR)$(PREFIX)/share/trireme/recipes/
	install -d $(WORDS:%=$(DESTDIR)$(PREFIX)/share/%)
	$(PROGRAM) completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/trireme
	$(PROGRAM) completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_trireme
	for page in $$($(PROGRAM) man --list); do \
	  $(PROGRAM) man $$page > $(DESTDIR)$(PREFIX)/share/man/man1/$$page.1 || exit; done
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' \
	  -e 's|@PACKAGES@|$(PACKAGES)|; s|@LIBS@|$(strip $(OWN_LIBS))|' tools/trireme.pc.in \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/trireme.pc

docs: all
	$(PROGRAM) settings --markdown > docs/settings.md
	$(PROGRAM) settings --aliases --markdown > docs/coming-from.md
	$(PROGRAM) explain --ops --markdown > docs/operators.md
	$(PROGRAM) place --devices --markdown > docs/devices.md
	tools/draw_pipelines.sh $(PROGRAM)
	tools/draw_context.sh $(PROGRAM)

# C and CUDA by clang-format, scripts by shfmt.
SOURCES = $(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh')
SCRIPTS = $(shell git ls-files '*.sh' .ci/run)
format:
	clang-format -i $(SOURCES)
	shfmt -i 4 -w $(SCRIPTS)
format-check:
	@clang-format --dry-run -Werror $(SOURCES)
	@shfmt -i 4 -d $(SCRIPTS)

# Some mistakes that compilers let pass; see .clang-tidy and .shellcheckrc.
lint:
	@tools/lint.sh

clean:
	rm -rf build build-*/

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
