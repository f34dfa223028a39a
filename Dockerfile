# syntax=docker/dockerfile:1
# The server in an image of its own: built with the compiler it is tested with, run without one.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# Caches stay out of the image; the binary is copied out of them.
# otlp: exports traces and metrics if the configuration says so. --build-arg FEATURES=otlp,nacos for limits in a
# config centre.
ARG FEATURES="otlp"
# dist: a smaller binary, for 5.5 GB of memory to build it.
ARG PROFILE=release
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile "$PROFILE" --locked --bin gatehouse --features "$FEATURES" \
    && cp "target/$PROFILE/gatehouse" /usr/local/bin/gatehouse

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --user-group --home-dir /app --shell /usr/sbin/nologin gatehouse \
    && install -d -o gatehouse -g gatehouse -m 0700 /app /app/data
COPY --from=build /usr/local/bin/gatehouse /usr/local/bin/gatehouse
USER gatehouse
WORKDIR /app
VOLUME /app/data
# SQLite would make its temporary files in /var/tmp, which it cannot with docker run --read-only.
ENV SQLITE_TMPDIR=/app/data
# Loopback inside a container reaches nobody. With development-only parts (the built-in defaults have one,
# the outbox) the server refuses this address and says so: name an SMS gateway.
ENV GATEHOUSE__SERVER__BIND=0.0.0.0:8080
EXPOSE 8080
# bash speaks enough HTTP for this; curl would be one more thing to patch.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /healthz HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r line <&3 && [[ $line == *' 200 '* ]]"]
ENTRYPOINT ["gatehouse"]
CMD ["serve"]
