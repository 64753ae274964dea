# Production dependencies only; TypeScript runs as it is, so nothing is built.
FROM node:26-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund

FROM node:26-slim
ENV NODE_ENV=production ADMIN_HOST=0.0.0.0
WORKDIR /app
COPY --from=dependencies /app/node_modules ./node_modules
COPY package.json ./
COPY config ./config
COPY lua ./lua
COPY src ./src
# Charges that wait for the store outlive the container when this folder does.
RUN rm -rf src/sandbox && mkdir .tollgate && chown node:node .tollgate
VOLUME /app/.tollgate
USER node
EXPOSE 8080 9090
HEALTHCHECK --interval=5s --timeout=2s --start-period=10s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.ADMIN_PORT || 9090}/livez`).then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# No npm in between: SIGTERM must reach node.
CMD ["node", "src/main.ts"]
