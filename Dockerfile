# docker build -t tollgate .                              the gateway
# docker build --target sandbox -t tollgate-sandbox .     the stand-in generator, to try things out
# The gateway runs as a bundle (npm run bundle): it starts in a third of the time and needs no node_modules. Decision 0040.

FROM node:26-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
# No script of a dependency runs: none of those for production needs one.
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund

FROM node:26-slim AS sandbox
ENV NODE_ENV=production HOST=0.0.0.0 PORT=4010
WORKDIR /app
COPY --from=dependencies /app/node_modules ./node_modules
COPY package.json ./
COPY src ./src
USER 1000:1000
EXPOSE 4010
CMD ["node", "--disable-sigusr1", "src/sandbox/main.ts"]

FROM node:26-slim AS bundle
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tools/bundle.ts ./tools/bundle.ts
COPY config ./config
COPY docs/operations ./docs/operations
COPY lua ./lua
COPY src ./src
ARG REVISION=unknown
RUN REVISION="$REVISION" node tools/bundle.ts --compile-cache

FROM node:26-slim AS gateway
# Probes and Prometheus come from outside the container. Never publish the admin port to the internet.
# One malloc arena for each thread keeps 10 MiB that nobody uses; nearly all of a gateway's work is in one thread.
ENV NODE_ENV=production ADMIN_HOST=0.0.0.0 MALLOC_ARENA_MAX=2
# Made with the bundle, and only read here.
ENV NODE_COMPILE_CACHE=/app/cache NODE_COMPILE_CACHE_PORTABLE=1
WORKDIR /app
# The gateway needs no package manager, and those of the base image bring a hundred packages of their own.
RUN cd ../usr/local && rm -rf lib/node_modules bin/npm bin/npx bin/corepack bin/yarn bin/yarnpkg ../../opt/yarn-*
COPY --from=bundle /app/dist ./
# The only folder that is written: charges that wait for Redis outlive the container when this one does. All else
# belongs to root, so the root filesystem may be read-only.
RUN mkdir .tollgate && chown 1000:1000 .tollgate
VOLUME /app/.tollgate
# `node` by number: Kubernetes cannot tell from a name that it is not root.
USER 1000:1000
EXPOSE 8080 9090
# Alive, not ready: a gateway that waits for Redis must not be killed for it. Change the admin port by ADMIN_PORT, which
# is looked at here, and not in the config file.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["node", "-e", "require('node:http').get(`http://127.0.0.1:${process.env.ADMIN_PORT || 9090}/livez`, r => process.exit(r.statusCode === 200 ? 0 : 1)).on('error', () => process.exit(1))"]
ARG VERSION=1.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Tollgate" \
  org.opencontainers.image.description="A rate-limit and billing gateway in front of an asynchronous AI video generator." \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
STOPSIGNAL SIGTERM
# No npm in between: the signal must reach node.
CMD ["node", "--disable-sigusr1", "src/main.js"]
