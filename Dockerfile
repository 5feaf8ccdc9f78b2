# Images of the scheduler and of what runs the tasks, and the files that the package points to.
#
#   docker build --target scheduler -t dcos-tensorflow/scheduler:0.1.0 .
#   docker build --target executor  -t dcos-tensorflow/executor:0.1.0 .
#   docker build --target artefacts --build-arg ARTEFACTS_URL=https://files.example.com/dcos-tensorflow --output universe-out .
#
# The digest names the index of all platforms, as published in docker-library/repo-info. A tag alone could be moved.
ARG PYTHON=python:3.12.14-slim-bookworm@sha256:0f5b26b9518d002b6173fd61daad821fa340635ebfec5bba471013f9ca114579

FROM ${PYTHON} AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
COPY requirements requirements
COPY scripts/install-locked scripts/build_backend.py scripts/
COPY pyproject.toml setup.cfg README.md LICENSE ./
COPY framework framework
COPY executor executor
COPY package package
COPY examples examples
# Where the files of the stage `artefacts` will be published; the default is a placeholder.
ARG ARTEFACTS_URL=https://example.com/dcos-tensorflow
RUN python -m venv /opt/dcos-tensorflow \
    && scripts/install-locked /opt/dcos-tensorflow/bin/python scheduler -- . \
    && /opt/dcos-tensorflow/bin/dcos-tensorflow package build --sources package --out /out --artefacts-url "$ARTEFACTS_URL"

# What is to be published; see docs/how-to/install.md.
FROM scratch AS artefacts
COPY --from=build /out /

# The scheduler. Its options come from the environment (docs/reference/options.md), or with --options from a file.
FROM ${PYTHON} AS scheduler
COPY --from=build /opt/dcos-tensorflow /opt/dcos-tensorflow
COPY --from=build /out/artefacts /opt/dcos-tensorflow/artefacts
ENV PATH=/opt/dcos-tensorflow/bin:$PATH PORT_API=8080 PYTHONUNBUFFERED=1
# The user owns no file of the image, so a program cannot change any.
USER 65534:65534
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=12s --start-period=60s --retries=3 \
    CMD ["dcos-tensorflow", "scheduler", "health"]
ENTRYPOINT ["dcos-tensorflow"]
CMD ["scheduler", "run"]

# For tasks: a Python for the executor, which the agent fetches, and a TensorFlow for the program.
FROM ${PYTHON} AS executor
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements requirements
COPY scripts/install-locked scripts/install-locked
RUN python -m venv /opt/tensorflow \
    && scripts/install-locked /opt/tensorflow/bin/python tensorflow
# Mesos starts tasks in an image's working directory if that is set.
WORKDIR /
ENV PATH=/opt/tensorflow/bin:$PATH PYTHONUNBUFFERED=1
USER 65534:65534
# Mesos and the executor watch tasks; an engine's own check would only be in their way.
HEALTHCHECK NONE
CMD ["python", "-c", "import tensorflow; print(tensorflow.__version__)"]
